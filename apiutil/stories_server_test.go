// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"errors"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// What a story does to its server, and which requests that sees.

// upset changes what the server serves, or how.
func (s *storyStage) upset(name string, args []string) error {
	switch name {
	case "serve":
		s.server.PutVersion(groupOf(args[0]), fakeVersion(args[1], strings.Split(args[2], ",")...))
	case "remove":
		if len(args) == 1 {
			s.server.Remove(groupOf(args[0]))
		}
		for _, version := range args[1:] {
			s.server.RemoveVersion(groupOf(args[0]), version)
		}
	case "prefer", "stale", "recover", "verbs":
		s.changeVersion(name, groupOf(args[0]), args[1], args[2:])
	case "lag":
		lag, err := time.ParseDuration(args[1])
		if err != nil {
			return err
		}
		s.server.SetLag(map[string]fakeapi.Part{"document": fakeapi.PartDocument, "lists": fakeapi.PartLists}[args[0]], lag)
	case "freeze":
		before := fakeapi.New(s.server.Groups()...)
		before.SetForms(s.forms)
		s.server.SetFault(fakeapi.At(args[0]), fakeapi.Func("behind", before.Client().Transport.RoundTrip))
	case "heal":
		s.server.ClearFaults()
	case "fail":
		fault, ok := map[string]fakeapi.Fault{
			"503": fakeapi.Status(503, 0), "403": fakeapi.Status(403, 0), "hang": fakeapi.Timeout(), "refuse": fakeapi.Refused(),
			"login": fakeapi.LoginPage(), "drip": fakeapi.SlowDrip(time.Second), "lost": fakeapi.Empty(404), "404": fakeapi.Status(404, 0),
			"cut": fakeapi.ResetMidBody(), "401": fakeapi.Status(401, 0), "429": fakeapi.Status(429, 0), "500": fakeapi.Status(500, 0),
			"empty": fakeapi.EmptyGroupList(), "503-once": fakeapi.Times(1, fakeapi.Status(503, 0)), "refuse-once": fakeapi.Times(1, fakeapi.Refused()),
			"404-once": fakeapi.Times(1, fakeapi.NotFound()), "no-route": fakeapi.LostRoute(), "no-service": fakeapi.LostService("tenant"),
		}[args[0]]
		if !ok {
			return errors.New("no such fault")
		}
		s.server.SetFault(faultPlace(args[1]), fault)
	case "ids":
		forms := s.forms
		forms.AuditIDs = map[string]fakeapi.AuditIDs{
			"all": fakeapi.AuditAll, "successes": fakeapi.AuditSuccesses, "none": fakeapi.AuditNone, "twice": fakeapi.AuditTwice,
		}[args[0]]
		s.server.SetForms(forms)
	case "speak":
		forms := map[string]fakeapi.Forms{
			"protobuf": fakeapi.Aggregated(), "JSON": {V2: true, ETag: true}, "protobuf-without-ETag": {V2: true, Protobuf: true},
			"JSON-without-ETag": {V2: true}, "v2beta1": fakeapi.V2Beta1Only(), "legacy": fakeapi.Legacy(),
		}[args[0]]
		forms.StatusNotFound = s.forms.StatusNotFound
		s.server.SetForms(forms)
	case "latency":
		latency, err := time.ParseDuration(args[0])
		s.server.SetLatency(latency)
		return err
	case "boot":
		s.ready = s.server.Boot(fakeapi.Booting{Unknown: args[1:], Answering: args[0] == "answering", Absent: args[0] == "absent"})
	case "ready":
		if len(args) == 0 {
			s.ready()
			return nil
		}
		d, err := time.ParseDuration(args[0])
		time.AfterFunc(d, s.ready)
		return err
	default:
		return errors.New("no such command")
	}
	return nil
}

// faultPlace is all requests, those of the document, of a group, or of a path.
func faultPlace(place string) func(*http.Request) bool {
	switch {
	case place == "all":
		return fakeapi.All()
	case place == "document":
		return fakeapi.At("/apis")
	case strings.HasPrefix(place, "/"):
		return fakeapi.At(place)
	}
	return fakeapi.InGroup(place)
}

// changeVersion changes a version that is served, or its place.
func (s *storyStage) changeVersion(how, group, version string, args []string) {
	groups := s.server.Groups()
	g := groups[slices.IndexFunc(groups, func(g fakeapi.Group) bool { return g.Name == group })]
	g.Versions = slices.Clone(g.Versions)
	i := slices.IndexFunc(g.Versions, func(v fakeapi.Version) bool { return v.Name == version })
	v := &g.Versions[i]
	switch how {
	case "prefer":
		first := *v
		g.Versions = slices.Insert(slices.Delete(g.Versions, i, i+1), 0, first)
	case "verbs":
		v.Resources = slices.Clone(v.Resources)
		v.Resources[slices.IndexFunc(v.Resources, func(r fakeapi.Resource) bool { return r.Kind == args[0] })].Verbs = args[1:]
	default:
		v.Stale = how == "stale"
	}
	s.server.Put(g)
}

func groupOf(name string) string {
	if name == "core" || name == "any" {
		return ""
	}
	return name
}

// trace returns the requests since it was called last. Those of several groups are sent side by
// side, and are listed by their paths.
func (s *storyStage) trace() (lines []string) {
	var live []string // requests one after the other, none of them of the document
	groups := map[string]bool{}
	flush := func() {
		if len(groups) > 1 {
			slices.Sort(live)
		}
		lines, live = append(lines, live...), nil
		clear(groups)
	}
	for _, r := range s.server.TakeRequests() {
		line := strings.Replace("  "+r.String(), "  v2beta1+", "  v2+", 1)
		if parts := strings.Split(r.Path, "/"); len(parts) > 2 { // "", "api", VERSION; or "", "apis", GROUP, VERSION
			live = append(live, line)
			groups[strings.Join(parts[:3], "/")] = true
			continue
		}
		flush()
		lines = append(lines, line)
	}
	flush()
	return lines
}
