// SPDX-License-Identifier: Apache-2.0

package fakeapi

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func legacyGroupNames(t *testing.T, r result) []string {
	t.Helper()
	var list metav1.APIGroupList
	if err := json.Unmarshal([]byte(r.Body), &list); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, group := range list.Groups {
		names = append(names, group.Name)
	}
	return names
}

func TestBoot(t *testing.T) {
	for _, test := range []struct {
		name    string
		booting Booting
		unknown int // the code of the paths of the group that is unknown
	}{
		{"silent", Booting{}, 503},
		{"answering", Booting{Answering: true}, 200},
		{"absent", Booting{Absent: true}, 404},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := New(sample()...)
			o := inMemoryOrigin(s)
			etag := o.get(t, "/apis", v2JSON, "").Header.Get("ETag")
			test.booting.Unknown = []string{"example.com"}
			ready := s.Boot(test.booting)
			if diff := cmp.Diff([]string{"metrics.example.com"}, legacyGroupNames(t, o.get(t, "/apis", plainJSON, ""))); diff != "" {
				t.Errorf("groups (-want +got):\n%s", diff)
			}
			codes := map[string]int{
				"/readyz": 500, "/api": 200, "/api/v1": 200, "/apis": 200,
				"/apis/example.com": test.unknown, "/apis/example.com/v1": test.unknown,
				"/apis/example.com/v9": 503, "/apis/absent": 503, "/absent": 503,
			}
			if test.booting.Absent {
				codes["/apis/example.com/v9"] = 404
			}
			for path, code := range codes {
				r := o.get(t, path, plainJSON, "")
				if r.Code != code {
					t.Errorf("%s: %d, want %d", path, r.Code, code)
				}
				if r.Code == 503 && r.Header.Get("Retry-After") != "5" {
					t.Errorf("%s: %v", path, r.Header)
				}
			}
			if r := o.get(t, "/apis", v2JSON, etag); r.Code != 200 {
				t.Errorf("the ETag of the whole document: %d", r.Code)
			}
			ready()
			if r := o.get(t, "/apis", v2JSON, etag); r.Code != 304 {
				t.Errorf("when it is ready: %d", r.Code)
			}
			for path, code := range map[string]int{"/readyz": 200, "/apis/example.com/v1": 200, "/apis/absent": 404} {
				if r := o.get(t, path, plainJSON, ""); r.Code != code {
					t.Errorf("%s, when it is ready: %d", path, r.Code)
				}
			}
		})
	}
}
