// SPDX-License-Identifier: Apache-2.0

package follow

import "k8s.io/apimachinery/pkg/watch"

// FilterWatch returns a watch whose events filter changes, or leaves out. If it is stopped, it takes events until it
// has ended: a watch.Filter, also upstream's for metadata, does not end while it has an event that nobody takes.
func FilterWatch(watching watch.Interface, filter func(watch.Event) (watch.Event, bool)) watch.Interface {
	return drained{watch.Filter(drained{watching}, filter)}
}

// drained is a watch whose events are taken after Stop, until it ends.
type drained struct{ watch.Interface }

func (d drained) Stop() {
	d.Interface.Stop()
	go func() {
		for range d.ResultChan() {
		}
	}()
}
