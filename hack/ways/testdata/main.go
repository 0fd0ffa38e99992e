// SPDX-License-Identifier: Apache-2.0

// Command operator looks a kind up in a manager's RESTMapper each time that it
// is sent a line, and prints what it found. The API server's address is its one
// argument.
package main

import (
	"bufio"
	"fmt"
	"os"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

func main() {
	ctrl.SetLogger(zap.New())
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(host string) error {
	mgr, err := ctrl.NewManager(&rest.Config{Host: host}, ctrl.Options{
		MapperProvider: provider,
		Metrics:        server.Options{BindAddress: "0"},
	})
	if err != nil {
		return err
	}
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		gk := schema.ParseGroupKind(lines.Text())
		mapping, err := mgr.GetRESTMapper().RESTMapping(gk)
		if err != nil {
			fmt.Println(err)
			continue
		}
		fmt.Println("found", mapping.Resource.GroupVersion(), mapping.Resource.Resource)
	}
	return more(mgr)
}
