// SPDX-License-Identifier: Apache-2.0

// Package fresh has controller-runtime's manager, client and cache for APIs that change while a program runs. They
// recover when a CustomResourceDefinition is re-created with another scope, plural or preferred version, and they
// wait for one that is not installed yet. Change one line of your program:
//
//	mgr, err := fresh.NewManager(cfg, ctrl.Options{...}) // instead of ctrl.NewManager
//
// To watch a kind that may be installed later, or never, name it in the options of the cache. Then For, Owns, Watches
// and IndexField work as for any other kind, and the controller starts without it:
//
//	ctrl.Options{Cache: cache.Options{ByObject: map[client.Object]cache.ByObject{&monitoringv1.ServiceMonitor{}: {}}}}
//
// # Before you use it
//
// If a namespaced kind is re-created as cluster-scoped, a write that names a namespace is rejected with a NotFound
// error, because there is no object ns/name any more. That holds until the program is restarted. It does not hold on
// a standby replica that has not used the kind before: there such a write goes to the cluster-scoped object. A read
// for a namespace returns cluster-scoped objects, as in a program that was restarted. So a program that deletes what
// it has read deletes cluster-scoped objects.
//
// If a kind in ByObject may not be listed, it counts as one that is not installed: reads return the Forbidden error,
// and the cache tries again. In a cache of several namespaces that holds for the whole kind if it may not be listed
// in one of them.
//
// Client and cache follow a *apiutil.DynamicRESTMapper of this module, and a mapper with a method Unwrap()
// meta.RESTMapper that returns one. With any other mapper they are controller-runtime's own, and NewManager logs
// that.
package fresh

// How it works, for those who change it. // A client or a cache of controller-runtime's is right until its kind
// switches to another REST path. Then the next request goes through a new client, and a new cache of that kind is
// filled before it takes the place of the old one. Informers, handlers and indexes stay.
//
// In a cache, each kind has a current instance, which is a cache of controller-runtime's for one mapping. While the
// kind switches it has a second one. Each instance has one state (type state), which changes in one function
// (become):
//
//	state     what reads return   what is sent             becomes
//	filling   (nothing reads it)  list and watch           present: it has listed all, and the kind is at its path
//	                                                       retired: the kind is not at its path
//	present   its objects         list and watch           outdated: a live read shows that the kind was removed, or
//	                                                       that it is served although its path refuses requests
//	                                                       retired: another instance has taken its place
//	outdated  its objects         list and watch           present: it could list after all
//	                                                       retired: another instance has taken its place
//	absent    the reason why      nothing; the cache asks  retired: the kind is served, and another instance has
//	          it is absent        for all absent kinds     listed it
//	retired   (nothing reads it)  nothing                  -
//
// Any instance also becomes retired when the last informer of its kind is removed.
//
// The first instance of a kind is present, or absent if the kind is not served. If the kind is in ByObject, a present
// instance is replaced by an absent one when two live reads, a second apart, have shown that the kind is not served,
// or when its first list is forbidden. For other kinds both are as in controller-runtime.
//
//	cache.go            the cache: which kind a call is for
//	cache_lookup.go     how a read finds its kind
//	cache_kind.go       which instance is the current one, and when another one takes its place
//	cache_absent.go     kinds that are not served
//	cache_instance.go   an instance
//	cache_state.go      its states
//	cache_listwatch.go  how it lists and watches, and which answers contradict its mapping
//	cache_informer.go   informers, which stay when the instance is replaced
//	cache_handler.go    handlers, each with the objects that were delivered to it (cache_delivered.go)
//	cache_view.go       the cache as a client sees it
//	client*.go          the client: plan, try and resend a request (client.go), the methods, and NewNamespacedClient
//	manager.go          the manager and the cluster
