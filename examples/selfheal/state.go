// SPDX-License-Identifier: Apache-2.0

//go:build !stock

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// state is what the watchdog thinks of a cluster.
type state string

const (
	unknown   state = "Unknown"   // nothing was read yet
	healthy   state = "Healthy"   // the last read succeeded
	failing   state = "Failing"   // reads fail, but not yet for longer than is tolerated
	unhealthy state = "Unhealthy" // reads have failed for longer than that; the cluster is repaired
)

// record is what the watchdog knows of a cluster. The file has one for each.
type record struct {
	State  state     `json:"state"`
	Since  time.Time `json:"since"`            // while reads fail: when the first of them failed
	Reason string    `json:"reason,omitempty"` // of the last failure

	Repairs    int       `json:"repairs,omitempty"`   // so far, while the cluster is unhealthy
	NextRepair time.Time `json:"nextRepair,omitzero"` // not before this time
}

// observed returns the record after a look at a mapper: its status, and the error of its Healthz. That fails once reads
// have failed for longer than UnhealthyAfter.
func (r record) observed(status apiutil.DynamicRESTMapperStatus, healthz error, now time.Time) record {
	fails := !status.UnhealthySince.IsZero()
	switch {
	case fails && r.State == unhealthy: // maybe since before the program was started again
		r.Reason = status.LastError.Error()
		return r
	case fails && healthz != nil:
		return record{State: unhealthy, Since: status.UnhealthySince, Reason: status.LastError.Error(), NextRepair: now}
	case fails:
		return record{State: failing, Since: status.UnhealthySince, Reason: status.LastError.Error()}
	case !status.LastSuccess.IsZero() && r.State != healthy:
		return record{State: healthy, Since: now}
	case status.LastSuccess.IsZero() && r.State == "":
		return record{State: unknown, Since: now}
	}
	return r // healthy, or nothing was read since the program was started: what the file says holds
}

// due reports whether the cluster is to be repaired now.
func (r record) due(now time.Time) bool {
	return r.State == unhealthy && !r.NextRepair.After(now)
}

// repaired returns the record after a repair. If that has helped, the next look is going to find out.
func (r record) repaired(now time.Time, backoff, longest time.Duration) record {
	for range r.Repairs {
		backoff = min(2*backoff, longest)
	}
	r.Repairs++
	r.NextRepair = now.Add(min(backoff, longest))
	return r
}

// load reads the records of all clusters. There are none if there is no file. The map is never nil.
func load(file string) (map[string]record, error) {
	text, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]record{}, nil
	}
	records := map[string]record{}
	if err == nil {
		err = json.Unmarshal(text, &records)
	}
	if err != nil || records == nil { // null is JSON, too
		return map[string]record{}, errors.Join(fmt.Errorf("%s does not have the records of clusters", file), err)
	}
	return records, nil
}

// save writes the records of all clusters. If the program ends meanwhile, the file still has the old ones.
func save(file string, records map[string]record) error {
	text, err := json.MarshalIndent(records, "", "  ")
	if err != nil {
		return err
	}
	next := file + ".next"
	if err := os.WriteFile(next, append(text, '\n'), 0o600); err != nil {
		return err
	}
	return os.Rename(next, file)
}
