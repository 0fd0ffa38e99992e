// SPDX-License-Identifier: Apache-2.0

// Package verify checks everything about the checkout that needs no test run. It
// is a test, of which hack/verify.sh asks for all checks.
package verify
