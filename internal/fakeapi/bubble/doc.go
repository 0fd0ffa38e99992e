// SPDX-License-Identifier: Apache-2.0

// Package bubble runs tests in virtual time. It is empty before Go 1.25, which has testing/synctest.
package bubble
