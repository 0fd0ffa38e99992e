// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

func (w *world) write(out string, lasting, took time.Duration) error {
	p := report.NewPage("Hostile servers", fmt.Sprintf("go run ./hostile -time %v", lasting), took)
	p.Text("%d mappers with different options, %d goroutines, and a server in memory that answers with random faults in random places, up to several at a time,", len(w.mappers), users)
	p.Text("while its groups, its forms and its lag change. Bodies are bounded to 1 MiB, requests to %v. Seed %d.\n", oneRequest, w.seed)
	p.Text("%d lookups; %d of them, of what is served throughout, ended with an error that is no NoMatch.", w.lookups.Load(), w.errs.Load())
	p.Text("A document that claims to be empty was among the faults. A *live* version or list that claims it was so only for groups of which nothing is asserted.\n")
	var most uint64
	for _, s := range w.heap {
		most = max(most, s.bytes)
	}
	p.Text("The live heap had %.1f MiB at most, the bound is %d MiB.\n\n![live heap](hostile.svg)\n", float64(most)/(1<<20), mostHeap>>20)
	var rows [][]string
	for _, name := range slices.Sorted(maps.Keys(faults())) {
		rows = append(rows, []string{name, fmt.Sprint(w.set[name])})
	}
	p.Table([]string{"fault", "set"}, rows)
	heap := report.Series{Name: "live heap"}
	for _, s := range w.heap {
		heap.Points = append(heap.Points, report.Point{X: s.at.Seconds(), Y: float64(s.bytes) / (1 << 20)})
	}
	return p.Finish(out, "hostile", &w.broken, report.Plot{
		Title: "Live heap under random faults", X: "seconds", Y: "MiB", Series: []report.Series{heap},
	})
}
