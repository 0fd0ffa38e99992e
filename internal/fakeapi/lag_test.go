// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package fakeapi

import (
	"testing"
	"testing/synctest"
	"time"
)

func TestLag(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const document, group, version = "GET /apis  ", "GET /apis/new.example.com  ", "GET /apis/new.example.com/v1  "
		s := New(sample()...)
		etag := get(t, s, "/apis", v2JSON, "").Header.Get("ETag")
		ask := func() []string {
			s.TakeRequests()
			get(t, s, "/apis", v2JSON, etag)
			get(t, s, "/apis/new.example.com", plainJSON, "")
			get(t, s, "/apis/new.example.com/v1", plainJSON, "")
			return lines(s.TakeRequests())
		}
		s.SetLag(PartDocument, time.Minute)
		s.SetLag(PartLists, Forever)
		time.Sleep(time.Hour)
		s.PutVersion("new.example.com", Version{Name: "v1"})
		wantLines(t, "at once", ask(), document+"304", group+"404", version+"legacy 200")
		time.Sleep(time.Minute - 1)
		wantLines(t, "almost a minute later", ask(), document+"304", group+"404", version+"legacy 200")
		time.Sleep(time.Nanosecond)
		wantLines(t, "a minute later", ask(), document+"v2+json 200", group+"404", version+"legacy 200")
		s.Remove("new.example.com")
		wantLines(t, "removed", ask(), document+"v2+json 200", group+"404", version+"404")
		s.SetLag(PartDocument, time.Second)
		time.Sleep(time.Second)
		wantLines(t, "with another lag", ask(), document+"304", group+"404", version+"404")
		s.PutVersion("new.example.com", Version{Name: "v1"})
		s.SetLag(PartDocument, 0)
		s.SetLag(PartLists, 0)
		wantLines(t, "without lag", ask(), document+"v2+json 200", group+"legacy 200", version+"legacy 200")
	})
}
