// SPDX-License-Identifier: Apache-2.0

// Package fresh has controller-runtime's manager, client and cache, which go on when a
// CustomResourceDefinition comes back with another scope, plural or preferred version. A program changes
// one line:
//
//	mgr, err := fresh.NewManager(cfg, ctrl.Options{...}) // instead of ctrl.NewManager
//
// A client or a cache of controller-runtime's is right until a kind moves to another path. Then the next
// request for that kind goes through a new client, and a new cache of that kind is filled before it takes
// the place of the old one. Informers, handlers and indexes stay.
//
// Know first: while a kind that was namespaced is cluster-wide, a write that names a namespace is refused
// with a 404, until the program is restarted: then such a write goes to the cluster-wide objects. A read for
// a namespace returns cluster-wide objects, as in a program that was restarted. So a program that deletes what
// it has read deletes cluster-wide objects.
//
// A mapper is followed if it is a *apiutil.DynamicRESTMapper of this module, or says with a method
// Unwrap() meta.RESTMapper that it wraps one. With any other, all is as controller-runtime has it.
package fresh
