// SPDX-License-Identifier: Apache-2.0

//go:build go1.25

package apiutil_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/freshmapper/freshmapper/apiutil"
	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// Log lines of a mapper name its cluster.
func TestFleetLog(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		log, logger := newTestLog()
		fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, WatchAPIs: true, Logger: logger})
		f := &fleetTest{fleet, newServer(fakeapi.Aggregated())}
		defer f.join(t, "a", f.new(t))()
		wantLine(t, log.containing("customresourcedefinitions"), "cannot watch for API changes", `"cluster"="a"`)
		f.server.SetFault(fakeapi.All(), fakeapi.Refused())
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		wantLine(t, log.containing("API discovery fails"), `"cluster"="a"`)
	})
}

// If a mapper was for two clusters and one has gone, the log does not name that one.
func TestFleetLogOfSharedMapper(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		log, logger := newTestLog()
		fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, Logger: logger})
		f := &fleetTest{fleet, newServer(fakeapi.Aggregated())}
		m := f.new(t)
		defer f.join(t, "a", m)()
		f.join(t, "b", m)()
		f.server.SetFault(fakeapi.All(), fakeapi.Refused())
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		wantLine(t, log.containing("API discovery fails"), `"cluster"="a"`)
	})
}

// A mapper that was made and not engaged logs that.
func TestFleetForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		log, logger := newTestLog()
		fleet := apiutil.NewFleet(apiutil.DynamicRESTMapperOptions{RefreshInterval: time.Minute, Logger: logger})
		f := &fleetTest{fleet, newServer(fakeapi.Aggregated())}
		m := f.new(t)
		for range 10 {
			wantServed(t, m, fooKind)
			time.Sleep(time.Minute)
		}
		wantLine(t, log.containing("have no effect"), "engage its cluster in a Fleet")
	})
}
