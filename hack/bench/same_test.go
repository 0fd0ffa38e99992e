// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"reflect"
	"testing"
)

// TestSameAnswers makes sure that the benchmarks compare like with like.
func TestSameAnswers(t *testing.T) {
	e := newEndpoint(groupsOf(30))
	for _, f := range flavours[1:] {
		ours, theirs := flavours[0].warmMapper(t, e), f.warmMapper(t, e)
		for _, l := range lookups {
			for _, q := range queriesOf(30) {
				got, err := l.do(ours, &q)
				if err != nil {
					t.Fatalf("%s(%v): %v", l.name, q.full, err)
				}
				if want, err := l.do(theirs, &q); err != nil || !reflect.DeepEqual(got, want) {
					t.Errorf("%s(%v): ours says %v, %s says %v, %v", l.name, q.full, got, f.name, want, err)
				}
			}
		}
	}
}
