// SPDX-License-Identifier: Apache-2.0

// Command replay does what operators do that make a client for each piece of work: in
// each round it makes a client for each object, in turn of each cluster, and reads the
// object with it. The clients of a round live until its end. It prints a line for each
// round: the round, the heap that it added, and its time in nanoseconds.
//
//	replay [flags] ADDRESS...   (-h explains)
//
// BenchmarkOnceReplay builds it on stock controller-runtime and on the fork.
package main

import (
	"bufio"
	"context"
	"flag"
	"fmt"
	"os"
	"runtime"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/apiutil"
)

var (
	rounds   = flag.Int("rounds", 1, "how many")
	objects  = flag.Int("objects", 1, "clients in each round")
	kind     = flag.String("kind", "", "`KIND.VERSION.GROUP` of the objects")
	provider = flag.Bool("provider", false, "take mappers from a Fleet, by the address")
	pause    = flag.Bool("pause", false, "wait for a line of input before each round")
)

func main() {
	flag.Parse()
	if err := run(flag.Args()); err != nil {
		fmt.Fprintln(os.Stderr, "replay:", err)
		os.Exit(1)
	}
}

func run(addresses []string) error {
	gvk, _ := schema.ParseKindArg(*kind)
	if gvk == nil || len(addresses) == 0 {
		return fmt.Errorf("-kind must be KIND.VERSION.GROUP, not %q, and an address must be given", *kind)
	}
	fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{})
	input := bufio.NewReader(os.Stdin)
	before := heap()
	for round := range *rounds {
		if *pause {
			if _, err := input.ReadString('\n'); err != nil {
				return err
			}
		}
		clients, begun := make([]client.Client, *objects), time.Now()
		for i := range clients {
			address := addresses[i%len(addresses)]
			c, err := newClient(fleet, address)
			if err != nil {
				return err
			}
			object := &unstructured.Unstructured{}
			object.SetGroupVersionKind(*gvk)
			if err := c.Get(context.Background(), client.ObjectKey{Namespace: "default", Name: fmt.Sprint("object-", i)}, object); err != nil {
				return err
			}
			clients[i] = c
		}
		took := time.Since(begun)
		fmt.Println(round, heap()-before, took.Nanoseconds())
		runtime.KeepAlive(clients)
	}
	return nil
}

// newClient makes a client as an operator does. Only with -provider it says where the
// mapper comes from.
func newClient(fleet *apiutil.Fleet, address string) (client.Client, error) {
	cfg := &rest.Config{Host: address, BearerToken: "operator", QPS: -1}
	if !*provider {
		return client.New(cfg, client.Options{})
	}
	httpClient, err := rest.HTTPClientFor(cfg)
	if err != nil {
		return nil, err
	}
	mapper, err := fleet.For(address, cfg, httpClient)
	if err != nil {
		return nil, err
	}
	return client.New(cfg, client.Options{HTTPClient: httpClient, Mapper: mapper})
}

func heap() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
