// SPDX-License-Identifier: Apache-2.0

// Package fakeapi serves the discovery of a Kubernetes API server, in memory, for
// tests and benchmarks. It answers as kube-apiserver does, until a test sets a fault:
//
//	server := fakeapi.New(fakeapi.Typical(100, 2, 3)...)
//	mapper, err := apiutil.NewDynamicRESTMapper(server.Config(), server.Client())
//	server.Put(fakeapi.Group{Name: "example.com", Versions: …})
//	heal := server.SetFault(fakeapi.Under("/apis"), fakeapi.Status(503, 0))
//
// Client and Config reach it without a socket and without a goroutine, so it
// works in a synctest bubble. It is also an http.Handler, for httptest.
//
// The answer to a request is decided when the request arrives, before the latency: a
// change that is made while a request is under way is not in its answer. That is the
// hardest case for a client that shares answers.
//
// A server that is always consistent proves little. SetLag makes its documents run
// behind, Boot makes it a server that has just started, and a Balancer puts several
// different servers behind one address.
//
// It has objects, too, where a test gives a Resource some, for clients and caches: they can be read, listed and
// watched. Writes are answered and change nothing. Faults of Objects are refusals by verb and namespace.
//
// Known differences from the real server: no YAML, CBOR or gzip, no access
// control. A missing version of a group that is there is a 404 with a
// metav1.Status, as for built-in groups; for custom ones the real server sends
// plain text, as both do for a missing group. /api is absent, as on an extension
// server, unless there is a group named "".
package fakeapi
