// SPDX-License-Identifier: Apache-2.0

package fresh_test

import (
	"context"
	"net/http"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache"
)

// slowHandler is a tally whose first update, or first delete, takes until release is closed.
type slowHandler struct {
	*tally
	onUpdate, onDelete chan struct{} // nil: at once
	in                 chan string
}

func (h *slowHandler) OnUpdate(old, obj any) {
	if h.onUpdate != nil {
		select {
		case h.in <- "update":
		default:
		}
		<-h.onUpdate
	}
	h.tally.OnUpdate(old, obj)
}

func (h *slowHandler) OnDelete(obj any) {
	h.tally.OnDelete(obj)
	if h.onDelete != nil {
		select {
		case h.in <- "delete":
		default:
		}
		<-h.onDelete
	}
}

// What an informer has still to tell when its kind has gone must not bring objects back.
func TestForgottenObjectsStayForgotten(t *testing.T) {
	t.Parallel()
	ctx, s := context.Background(), newMovingServer(t, inNamespaces)
	c, m := s.caching(t, cache.Options{})
	i, err := c.GetInformer(ctx, caller{sorts[0], configMap}.object("", ""))
	must(t, err)
	h := &slowHandler{tally: &tally{}, onUpdate: make(chan struct{}), in: make(chan string, 1)}
	_, err = i.AddEventHandler(h)
	must(t, err)
	eventually(t, "told of all", func() bool { return h.keys() == "ns/n other/n" })
	// Two updates come: the first makes the handler wait, the second waits in the informer's buffer.
	s.change(func() { s.watched, s.floods = s.object("ns", "n"), true })
	<-h.in
	time.Sleep(200 * time.Millisecond)
	s.change(func() {
		s.watched, s.floods = "", false
		s.refuses["list"], s.refuses["watch"] = http.StatusNotFound, http.StatusNotFound
	})
	time.Sleep(200 * time.Millisecond)
	s.move(t, m, "")
	c.(forgets).ForgetKind(configMap)
	time.Sleep(100 * time.Millisecond)
	close(h.onUpdate)
	time.Sleep(time.Second)
	if keys := h.keys(); keys != "" {
		log, _ := h.told()
		t.Errorf("the kind is gone, and the handler has %q: %q", keys, log)
	}
}

// The server fails while a handler is told that objects are gone: it is told of all.
func TestKindThatIsForgottenInAnOutage(t *testing.T) {
	t.Parallel()
	ctx, s := context.Background(), newMovingServer(t, inNamespaces)
	c, m := s.caching(t, cache.Options{})
	i, err := c.GetInformer(ctx, caller{sorts[0], configMap}.object("", ""))
	must(t, err)
	h := &slowHandler{tally: &tally{}, onDelete: make(chan struct{}), in: make(chan string, 1)}
	_, err = i.AddEventHandler(h)
	must(t, err)
	eventually(t, "told of all", func() bool { return h.keys() == "ns/n other/n" })
	s.move(t, m, "")
	c.(forgets).ForgetKind(configMap)
	<-h.in
	s.change(func() { s.down = true })
	if err := m.Refresh(ctx, ""); err == nil {
		t.Error("the outage is none")
	}
	close(h.onDelete)
	time.Sleep(time.Second)
	s.change(func() { s.down = false })
	must(t, m.Refresh(ctx, ""))
	time.Sleep(2 * time.Second)
	if keys := h.keys(); keys != "" {
		log, _ := h.told()
		t.Errorf("the kind is gone, and the handler still has %q; told %q", keys, log)
	}
}
