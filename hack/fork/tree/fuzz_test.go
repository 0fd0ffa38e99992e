// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"bytes"
	"go/format"
	"slices"
	"testing"
)

// damaged returns a file with lines dropped, doubled or exchanged, or with a byte
// changed, as a release might have it that nobody has checked.
func damaged(data, how []byte) []byte {
	lines := bytes.SplitAfter(data, []byte("\n"))
	for ; len(how) >= 3 && len(lines) > 1; how = how[3:] {
		at := (int(how[1])<<8 | int(how[2])) % (len(lines) - 1)
		switch how[0] % 4 {
		case 0:
			lines = slices.Delete(lines, at, at+1)
		case 1:
			lines = slices.Insert(lines, at, lines[at])
		case 2:
			lines[at], lines[at+1] = lines[at+1], lines[at]
		default:
			if line := bytes.Clone(lines[at]); len(line) > 0 { // the last one may have come here
				line[int(how[1])%len(line)] ^= 1 << (how[2] % 7)
				lines[at] = line
			}
		}
	}
	return bytes.Join(lines, nil)
}

// Whatever upstream's files look like, an edit neither panics nor writes invalid
// Go. It returns an error that names what somebody has to look at. Run it with
// -fuzz to go beyond the seeds.
func FuzzEdit(f *testing.F) {
	names := edited()
	upstream := upstreamOf(f, Newest())
	f.Add(uint8(6), []byte("2??7??")) // the empty line after the last one goes up
	for i := range names {
		f.Add(uint8(i), []byte{})
		for at := range 40 {
			f.Add(uint8(i), []byte{byte(at), byte(at / 4), byte(53 * at)})
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, how []byte) {
		name := names[int(which)%len(names)]
		before := damaged(upstream[name], how[:min(len(how), 60)])
		after, err := editOf(name).apply(before, holes{})
		if err != nil {
			return
		}
		if _, err := format.Source(after); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if bytes.Equal(after, before) {
			t.Errorf("%s: no error, and no edit", name)
		}
	})
}
