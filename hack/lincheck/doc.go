// SPDX-License-Identifier: Apache-2.0

// Package lincheck runs random histories of lookups and resets against an API
// server that changes, lags and fails, and checks every answer against F1 to F3, F5, F6
// and F9 in DESIGN.md. It uses the public package apiutil alone:
//
//	go test .                                     200 histories in each mode
//	go test . -timeout 30m -histories 10000       more
//	go test -run TestHistories/legacy . -seed 7 -histories 1 -v
//
// A history that breaks a rule is printed as a timeline, with the command that
// runs it again.
//
// # The world
//
// Four clients call one mapper in virtual time (testing/synctest). Kinds come, go,
// change scope and move between versions; groups come and go. A live read tells
// the truth of the moment at which it is answered: it comes after one latency and before
// another. The document shows a change at once, later, or much later, and never goes back.
// Faults hit the whole server, the document, one group or one version: error codes, HTML
// pages, refused and hanging connections, bodies that end early, the 404 of a gateway that has
// lost its service or, where answers have an Audit-Id, its route. In a quarter of the histories
// no answer has one; a 404 is text or a Status. A server is aggregated or legacy. It may list
// what only a peer serves; or two replicas of different age answer for it, for each request one
// or the other, also for live reads. The order of groups and versions is neither that of their
// names nor of their age, and a document has the kinds of a version in another order than a list.
//
// # What an answer may be
//
// Every request is noted with what its answer tells, so the rules are about reads.
// A read belongs to a lookup if it was sent after the lookup began, and got a true
// answer before the lookup ended.
//
// NoMatch needs a proof among the lookup's own reads (F2):
//
//   - Of each version asked for: a live read that does not show the kind. A Reset
//     makes this no weaker.
//   - Of a group without a version: its live list, and of each version in it a
//     live read that does not show the kind. A kind that moves between versions meanwhile
//     may be in none of them when that is read.
//   - Of a group that the mapper need not have known: a document that does not list
//     it. The mapper must know a group if a read that ended before the lookup began
//     told of it, and no read has told since that it is gone. A document that never
//     listed the group does not tell that it is gone.
//   - The document is enough for groups that a KindFor does not name in full, and
//     for lookups that begin before the first document was read. On a legacy
//     server it needs live reads of the versions that it lists, too.
//   - One exception: a lookup that names no version and meets the 404 of one may leave the
//     group's list for the next lookup (R3 in DESIGN.md).
//
// What is found must have been told by a read which counts:
//
//   - It began after the last Reset that returned before the lookup began (F3).
//     Then it may be one of the document, with what the document said at that time.
//   - It is not outdated: no later read, whose result was known when the lookup
//     began, has told otherwise. So a hit may be as old as the last read of its
//     version, however old that is, but no older. "Later" and "known" are about busy
//     periods: between two of them no request is under way. So the reads of the first
//     were published before those of the second began, whatever the mapper does with
//     its requests. A document that repeats what it said of a group is no news: it is
//     as old as the first document that said so. A read is outdated by a live read.
//     What a document said is outdated by news, too, in a document that lists the
//     version. Both count only in a period without failures.
//     A live 404 within 30 seconds of a failure outdates nothing: a document decides, and a
//     server that starts answers 404 for what it serves. For built-in versions, which a peer
//     may serve, a document decides always (R6).
//   - While a fault concerns the lookup, and for 3 seconds after a read that got no answer, it
//     may serve what was told before a reset, if nothing had outdated that (F6, R7). So it may
//     while the document still lists a path whose 404 is unconfirmed; then it may be an error, too.
//
// The order is the server's (F5): if, by the rules above, all reads since the resets, or since its own
// path has told so, have told that a version serves the kind, RESTMappings must not leave it out, and a
// lookup of one answer must not pass over it: in the order of the question, or in the order in which the
// last document or list has told of both versions, or both groups.
//
// Any other error needs a fault in the lookup's time, of the document, or of a version
// that is asked for (F6). Nobody waits for what he does not need (F9): at each moment of a
// lookup a request is under way that it may need, for a version in question, their list, or
// the document if it was not read since a reset or the group is not known. A lookup of a
// version that must be known takes no time as long as nothing was ever reset (F1).
//
// So an answer was true at one moment: what proves it is a read that was answered then, within the
// lookup for NoMatch, since the last reset for what is found. Changes are made in one instant and
// lookups change nothing: a history that passes is linearizable, except for the excuses above.
//
// # The checker itself
//
// Every rule is in check_test.go, what a read tells in reads_test.go, what there is to check in
// history_test.go, and how it is made in run_test.go.
//
// Mutants (TestMutants) use the mapper wrongly, or spoil its answers, each so that it
// breaks a rule, and must be caught. The rules hold for any mapper that publishes a read when
// its call ends. They do not cover the watch, Start and NegativeTTL.
package lincheck
