// SPDX-License-Identifier: Apache-2.0

package fresh

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// A kind that has left the cache just before it would begin to wait does not wait: nothing would ever end that.
func TestKindThatHasLeftTheCacheDoesNotWait(t *testing.T) {
	server := fakeapi.New()
	made, err := NewCache(server.Config(), cache.Options{
		HTTPClient: server.Client(),
		ByObject:   map[client.Object]cache.ByObject{&corev1.ConfigMap{}: {}},
	})
	if err != nil {
		t.Fatal(err)
	}
	c := made.(*followingCache)
	gvk := corev1.SchemeGroupVersion.WithKind("ConfigMap")
	reason := &meta.NoKindMatchError{GroupKind: gvk.GroupKind()}
	k, err := newAbsentKind(c, gvk, reason)
	if err != nil {
		t.Fatal(err)
	}
	k.setWaiting(k.current.Load(), reason)
	if waiting := c.mapper.Waiting(); len(waiting) != 1 {
		t.Errorf("waits for %v, want the kind that is absent", waiting)
	}
	k.end()
	k.setWaiting(k.current.Load(), reason)
	if waiting := c.mapper.Waiting(); len(waiting) > 0 {
		t.Errorf("waits for %v after the kind has left the cache", waiting)
	}
}
