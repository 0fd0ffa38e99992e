// SPDX-License-Identifier: Apache-2.0

// Package refresh is what runs beside the lookups, and only inside Run: it
// refreshes at an interval, and when the API server's own lists of APIs change.
//
// Everything that may ask for a refresh rings one doorbell. One loop answers it,
// so that no two refreshes run at once and a burst of events costs a bounded
// number of reads. When Run returns, nothing that it started is left; see Run for
// the one exception.
package refresh
