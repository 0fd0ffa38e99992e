// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"math"
)

// Many clusters in one process.

const (
	clusters      = 1000
	clusterGroups = 300
	reconciles    = 10_000
	reconciled    = 200 // clusters
)

var (
	equalOf = []struct{ name, text string }{{"clusters", "80 % of the clusters equal"}, {"groups", "80 % of the groups equal"}}
	clients = []struct{ name, text string }{{"own", "client-go's transport"}, {"wrapped", "wrapped transport, SharedAs"}}
)

func clustersOf(equal, mapper string) string {
	return of("OnceClusters/equal="+equal, clusterGroups, mapper)
}

func reconcilesOf(client, mapper string) string {
	return of("OnceReconciles/client="+client, clusterGroups, mapper)
}

func (s *samples) fleetTargets() []target {
	var list []target
	for _, equal := range equalOf {
		list = append(list, target{
			what: "1,000 clusters of 300 groups, " + equal.text + ": heap of all mappers", limit: 32 << 20, unit: "B",
			measured: clusters * s.median(clustersOf(equal.name, "ours"), heap),
		})
	}
	for _, client := range clients {
		name := reconcilesOf(client.name, "ours")
		full := s.median(name, "full/reconcile") / 2 // of the two halves of the document
		list = append(list,
			target{
				what:  "a mapper for each of 10,000 reconciles over 200 clusters, " + client.text + ": full reads",
				limit: 1, unit: "%", measured: 100 * full,
			},
			target{
				what:  "the same: full reads beyond the first of each cluster",
				limit: 0, measured: math.Round(reconciles*full) - reconciled,
			},
			s.value("the same: 304s of each reconcile", 2, "", name, "unchanged/reconcile"),
		)
	}
	return append(list, target{
		what: "hit of a mapper that shares ÷ of one that does not, mean of 4 sizes", limit: 1.05, unit: "×", measured: s.sharing(),
	})
}

// sharing is the geometric mean over the sizes of what sharing costs a hit.
func (s *samples) sharing() float64 {
	product := 1.0
	for _, groups := range sizes {
		product *= s.median(hit(groups, "RESTMapping", "ours"), perOp) / s.median(hit(groups, "RESTMapping", "alone"), perOp)
	}
	return math.Pow(product, 1/float64(len(sizes)))
}

func (s *samples) writeFleet(w io.Writer) {
	fmt.Fprint(w, "One process with a mapper for each of 1,000 clusters of 300 groups: in the first rows each fifth cluster has 60 groups of its own and the others are "+
		"equal, in the others each cluster has 60 of its own. Two goroutines read them. Measured in the first round alone; of stock and deferred 20 clusters, times 50.\n\n")
	t := newTable("1,000 clusters", "equal", "ours", "stock", "deferred")
	for _, equal := range equalOf {
		for _, row := range []struct {
			what, unit string
			format     func(float64) string
		}{{"heap of all mappers", heap, bytesOf}, {"first lookup of all", "cold-sec/mapper", seconds}, {"requests", "requests/mapper", number}, {"document bytes", "doc-B/mapper", bytesOf}} {
			cells := []string{row.what, equal.text}
			for _, m := range mappers {
				cells = append(cells, row.format(clusters*s.median(clustersOf(equal.name, m), row.unit)))
			}
			t.row(cells...)
		}
	}
	t.write(w)

	fmt.Fprint(w, "A client and a mapper made for each of 10,000 reconciles over 200 such clusters in turn, on sockets, with a garbage collection now and then. "+
		"The document has two halves. Of stock and deferred 400 reconciles.\n\n")
	t = newTable("each reconcile", "client", "ours", "stock", "deferred")
	for _, client := range clients {
		for _, row := range []struct {
			what, unit string
			format     func(float64) string
		}{{"halves read in full", "full/reconcile", number}, {"halves unchanged, 304", "unchanged/reconcile", number}, {"document bytes", "doc-B/reconcile", bytesOf}, {"time", "sec/reconcile", seconds}} {
			cells := []string{row.what, client.text}
			for _, m := range mappers {
				cells = append(cells, row.format(s.median(reconcilesOf(client.name, m), row.unit)))
			}
			t.row(cells...)
		}
	}
	t.write(w)
}
