// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"
)

// lazyStatus is what /kinds answers.
type lazyStatus struct {
	Kinds             map[string]lazyEntry `json:"kinds"`
	DiscoveryRequests int                  `json:"discoveryRequests"`
}

type lazyEntry struct {
	State   string `json:"state"`
	Message string `json:"message"`
}

func (e lazyEntry) String() string { return strings.TrimSpace(e.State + " " + e.Message) }

func (s lazyStatus) of(kind Kind) lazyEntry { return s.Kinds[kind.Kind+"."+kind.Group] }

func (s lazyStatus) count(state string) (n int) {
	for _, e := range s.Kinds {
		if e.State == state {
			n++
		}
	}
	return n
}

func httpGet(ctx context.Context, address, path string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+address+path, nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }() // read to the end below
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", path, resp.Status, body)
	}
	return body, err
}
