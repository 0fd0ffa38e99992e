// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"net/http"
	"testing"
)

func TestBalancer(t *testing.T) {
	old, young := New(), New(Group{Name: "example.com", Versions: []Version{{Name: "v1"}}})
	choose := func(req *http.Request) *Server {
		if req.URL.Path == "/apis" {
			return old
		}
		return young
	}
	for name, test := range map[string]struct {
		balancer Balancer
		codes    []int // of /apis/example.com
		old      int   // requests
	}{
		"round robin": {RoundRobin(old, young), []int{404, 200, 404}, 2},
		"by path":     {choose, []int{200, 200}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			o := origin{&http.Client{Transport: test.balancer}, "http://fake.invalid"}
			for _, code := range test.codes {
				if r := o.get(t, "/apis/example.com", plainJSON, ""); r.Code != code {
					t.Errorf("%d, want %d", r.Code, code)
				}
			}
			if got := len(old.TakeRequests()); got != test.old {
				t.Errorf("%d requests to the old one", got)
			}
		})
	}
}
