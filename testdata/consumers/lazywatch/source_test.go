// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
)

var configMap = corev1.SchemeGroupVersion.WithKind("ConfigMap")

// newTestSource makes a source of a server that lists one of so many objects, and answers
// watches as watch does.
func newTestSource(t *testing.T, objects int64, watch http.HandlerFunc) *source {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Query().Get("watch") != "" {
			watch(w, r)
			return
		}
		list := metav1.PartialObjectMetadataList{Items: make([]metav1.PartialObjectMetadata, min(objects, 1))}
		list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"))
		list.ResourceVersion = "1"
		if more := objects - 1; more > 0 {
			list.RemainingItemCount = &more
		}
		answer(w, http.StatusOK, &list)
	}))
	t.Cleanup(server.Close)
	mgr, err := ctrl.NewManager(&rest.Config{Host: server.URL}, ctrl.Options{
		Logger: logr.Discard(),
		MapperProvider: func(*rest.Config, *http.Client) (meta.RESTMapper, error) {
			mapper := meta.NewDefaultRESTMapper([]schema.GroupVersion{corev1.SchemeGroupVersion})
			mapper.Add(configMap, meta.RESTScopeNamespace)
			return mapper, nil
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	return newSource(mgr, newBoard(logr.Discard(), time.Minute), options{manyObjects: 10, maxTargets: 1, syncTimeout: time.Minute})
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body)
}

func TestWarningOfManyObjects(t *testing.T) {
	for objects, want := range map[int64]string{
		0: "", 1: "", 10: "",
		11: "; there are 11 objects of this kind, more than -many-objects=10, and the server reads all of them to list the marked ones",
	} {
		got, err := newTestSource(t, objects, nil).warning(t.Context(), configMap)
		if err != nil || got != want {
			t.Errorf("%d objects: %q, %v", objects, got, err)
		}
	}
}

// If a kind may not be watched any more, its source fails, so that the breaker counts. If
// the server is down, the watch is tried again, and the source goes on.
func TestSourceFailsIfTheServerForbidsTheWatch(t *testing.T) {
	var watches atomic.Int64
	s := newTestSource(t, 1, func(w http.ResponseWriter, _ *http.Request) {
		err := apierrors.NewServiceUnavailable("down")
		if watches.Add(1) > 3 {
			err = apierrors.NewForbidden(schema.GroupResource{Resource: "configmaps"}, "", nil)
		}
		answer(w, int(err.ErrStatus.Code), err.Status())
	})
	if err := s.mirror(t.Context(), configMap, ""); !apierrors.IsForbidden(err) || watches.Load() < 4 {
		t.Errorf("%v after %d watches", err, watches.Load())
	}
}
