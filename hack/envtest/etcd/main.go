// SPDX-License-Identifier: Apache-2.0

// Command etcd is etcd's own server and nothing else, built from the module
// that go.mod pins.
package main

import (
	"os"

	"go.etcd.io/etcd/server/v3/etcdmain"
)

func main() {
	etcdmain.Main(os.Args)
}
