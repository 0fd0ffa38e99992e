// SPDX-License-Identifier: Apache-2.0

package lincheck

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// read reads the versions asked for, or the document and then all of the group.
func (m *reference) read(gk schema.GroupKind, versions []string, own facts) error {
	if len(versions) > 0 {
		return m.readVersions(gk.Group, versions, own)
	}
	believed := m.believes(gk.Group) // as of now: what is reset later is for later lookups
	err := m.readDocument(own)
	if believed && len(own.find(gk, nil)) > 0 || m.faults.believesDocument {
		return err
	}
	if list, _ := m.find(gk, nil, true); len(list) > 0 {
		return err
	}
	clear(own) // of the document
	return m.readGroup(gk.Group, own)
}

// believes reports whether no ResetGroup waits for a live read.
func (m *reference) believes(group string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.groupReset[group] == 0 || m.settled[group] > 0
}

func (m *reference) readGroup(group string, own facts) error {
	var list struct {
		Kind     string
		Versions []struct{ Version string }
	}
	tick := m.next()
	served, err := m.get("/apis/"+group, "application/json", &list)
	if err != nil || served && list.Kind != "APIGroup" {
		return cmp.Or(err, errors.New("no APIGroup"))
	}
	versions := map[string]bool{}
	for _, v := range list.Versions {
		versions[v.Version] = true
	}
	for _, version := range versionNames {
		if !versions[version] {
			m.learn(schema.GroupVersion{Group: group, Version: version}, known{tick: tick, live: true})
		}
	}
	return m.readVersions(group, slices.Sorted(maps.Keys(versions)), own)
}

func (m *reference) readVersions(group string, versions []string, own facts) error {
	for _, version := range versions {
		var list struct {
			Kind      string
			Resources []struct {
				Kind       string
				Namespaced bool
			}
		}
		fact := known{tick: m.next(), live: true, kinds: map[string]bool{}}
		served, err := m.get("/apis/"+group+"/"+version, "application/json", &list)
		if err != nil || served && list.Kind != "APIResourceList" {
			return cmp.Or(err, errors.New("no APIResourceList"))
		}
		for _, r := range list.Resources {
			fact.kinds[r.Kind] = r.Namespaced
		}
		gv := schema.GroupVersion{Group: group, Version: version}
		own[gv] = fact
		m.learn(gv, fact)
	}
	return nil
}

func (m *reference) learn(gv schema.GroupVersion, fact known) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.facts[gv].tick < fact.tick {
		m.facts[gv] = fact
	}
	if fact.live && m.settled[gv.Group] == 0 && fact.tick > m.groupReset[gv.Group] {
		m.settled[gv.Group] = fact.tick
	}
}

// aggregated is as much of an aggregated document as is needed here.
type aggregated struct {
	Kind  string
	Items []aggregatedGroup
}

type aggregatedGroup struct {
	Metadata struct{ Name string }
	Versions []struct {
		Version   string
		Resources []struct {
			ResponseKind struct{ Kind string }
			Scope        string
		}
	}
}

// readDocument learns those groups of the document that are news.
func (m *reference) readDocument(own facts) error {
	m.document <- struct{}{}
	defer func() { <-m.document }()
	tick := m.next()
	var list aggregated
	_, err := m.get("/apis", "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,application/json", &list)
	if err != nil || list.Kind != "APIGroupDiscoveryList" {
		return err
	}
	before := m.listed // only who reads the document touches it
	m.listed = map[string]string{}
	for _, group := range list.Items {
		name := group.Metadata.Name
		m.listed[name] = fmt.Sprint(group)
		if m.listed[name] != before[name] || m.faults.oldDocumentWins || m.outdated(name) {
			m.learnGroup(group, tick, own)
		}
	}
	return nil
}

// outdated reports whether nothing that is known about a group counts after a Reset.
func (m *reference) outdated(group string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for gv, fact := range m.facts {
		if gv.Group == group && fact.tick > m.reset {
			return false
		}
	}
	return true
}

func (m *reference) learnGroup(group aggregatedGroup, tick int, own facts) {
	facts := map[string]known{}
	for _, v := range group.Versions {
		facts[v.Version] = known{tick: tick, kinds: map[string]bool{}}
		for _, r := range v.Resources {
			facts[v.Version].kinds[r.ResponseKind.Kind] = r.Scope == "Namespaced"
		}
	}
	for _, version := range versionNames {
		fact, ok := facts[version]
		if !ok {
			fact = known{tick: tick}
		}
		gv := schema.GroupVersion{Group: group.Metadata.Name, Version: version}
		own[gv] = fact
		m.learn(gv, fact)
	}
}

// get reports whether a path is served, and decodes what is.
func (m *reference) get(path, accept string, into any) (bool, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 400*time.Millisecond)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://fake.invalid"+path, nil)
	if err != nil {
		return false, err
	}
	req.Header.Set("Accept", accept)
	resp, err := m.transport.RoundTrip(req)
	if err != nil {
		return false, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	switch {
	case err != nil:
		return false, err
	case resp.StatusCode == http.StatusNotFound && (strings.HasPrefix(string(body), "404 page") || strings.Contains(string(body), `"Status"`)):
		return false, nil
	case resp.StatusCode != http.StatusOK:
		return false, fmt.Errorf("%s: %s", path, resp.Status)
	}
	return true, json.Unmarshal(body, into)
}
