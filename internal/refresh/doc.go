// SPDX-License-Identifier: Apache-2.0

// Package refresh works beside the lookups, and only inside Run: it refreshes at an
// interval, and when the API server's own lists of APIs change.
//
// Everything that needs a refresh rings one doorbell. One loop answers it, so no two
// refreshes run at once, and a burst of events costs a bounded number of reads. When Run
// returns, its goroutines have ended, with one exception that Run names.
package refresh
