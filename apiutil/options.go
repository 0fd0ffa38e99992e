// SPDX-License-Identifier: Apache-2.0

package apiutil

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/freshmapper/freshmapper/internal/engine"
)

// DynamicRESTMapperOptions are the settings of a DynamicRESTMapper. The zero
// value gives the mapper that NewDynamicRESTMapper returns.
type DynamicRESTMapperOptions struct {
	// RefreshInterval is the longest time between refreshes while Start runs. Each wait
	// is shorter by up to a tenth, at random. If nothing has changed, a refresh costs two
	// requests that are answered with 304. The interval bounds how long the mapper still
	// returns a kind that was removed. Defaults to 0: no refresh by interval.
	RefreshInterval time.Duration

	// WatchAPIs refreshes, while Start runs, about a second after a
	// CustomResourceDefinition or an APIService was created, changed or deleted. The program needs
	// the verbs list and watch on both. Defaults to false.
	WatchAPIs bool

	// MaxAge is how often the mapper confirms what is in use: the first hit after that
	// time starts a refresh and does not wait for it. If nothing has changed, a refresh
	// costs two requests that are answered with 304. You need no Start for this, and an
	// idle program sends no request. Negative means never. Defaults to 30 seconds.
	MaxAge time.Duration

	// NegativeTTL is how long the mapper remembers that a lookup ended with NoMatch: the same
	// lookup returns the same error without a request, unless the mapper was reset or has
	// noticed a change in the meantime. So a kind that is installed may be found that much later. The
	// mapper remembers the last 4,096 lookups. Defaults to 0: every miss is rechecked.
	NegativeTTL time.Duration

	// RequestTimeout bounds one discovery request. Until the mapper has read the server once, it
	// includes the waits that a busy server asks for by Retry-After. Defaults to 30 seconds.
	RequestTimeout time.Duration

	// MaxResponseBytes bounds the body of one discovery response, after
	// decompression. A larger one is an error. Defaults to 64 MiB.
	MaxResponseBytes int64

	// UnhealthyAfter is how long reads must fail before Healthz fails. After an idle time that is longer
	// than that, or than the pauses between refreshes, the time begins anew. Defaults to 2 minutes.
	UnhealthyAfter time.Duration

	// Logger gets one line when the served API changes, when reads of the server begin to
	// fail, and when they work again. At level 4 it gets a line for each read, and for each
	// lookup that ends with NoMatch. Defaults to no logging; with fresh.NewManager,
	// and in the patched controller-runtime, to ctrl.Log.WithName("restmapper").
	Logger logr.Logger

	// Metrics counts requests, reads and misses. Defaults to nil, no metrics; with
	// fresh.NewManager, and in the patched controller-runtime, to those of controller-runtime's registry.
	Metrics DynamicRESTMapperMetrics
}

// defaulted returns the options with defaults for what is zero, or an error that
// names the invalid option, and says why.
func (o DynamicRESTMapperOptions) defaulted() (DynamicRESTMapperOptions, error) {
	for _, option := range []struct {
		name      string
		value     *time.Duration
		byDefault time.Duration
		min       time.Duration
	}{
		{"RefreshInterval", &o.RefreshInterval, 0, minInterval},
		{"MaxAge", &o.MaxAge, 30 * time.Second, minInterval},
		{"NegativeTTL", &o.NegativeTTL, 0, 0},
		{"RequestTimeout", &o.RequestTimeout, 30 * time.Second, minInterval},
		{"UnhealthyAfter", &o.UnhealthyAfter, 2 * time.Minute, 0},
	} {
		value := cmp.Or(*option.value, option.byDefault)
		if value < 0 && option.name != "MaxAge" {
			return o, fmt.Errorf("%s must not be negative", option.name)
		}
		if value > 0 && value < option.min {
			return o, fmt.Errorf("%s is %v, less than %v: give it with its unit, such as 30 * time.Second",
				option.name, value, option.min)
		}
		*option.value = value
	}
	if o.MaxResponseBytes < 0 {
		return o, errors.New("MaxResponseBytes must not be negative")
	}
	o.MaxResponseBytes = cmp.Or(o.MaxResponseBytes, 64<<20)
	if o.Logger.GetSink() == nil {
		o.Logger = defaultLogger()
	}
	if o.Metrics == nil {
		o.Metrics = defaultMetrics()
	}
	return o, nil
}

// minInterval is the shortest time that an option may have. A shorter one is a mistake: a
// number without a unit means nanoseconds. With it the mapper would ask the server
// without a pause, or never wait for its answer.
const minInterval = time.Millisecond

// forEngine returns the options for the engine. o has its defaults.
func (o DynamicRESTMapperOptions) forEngine() engine.Options {
	return engine.Options{
		RefreshInterval:  o.RefreshInterval,
		WatchAPIs:        o.WatchAPIs,
		MaxAge:           o.MaxAge,
		NegativeTTL:      o.NegativeTTL,
		RequestTimeout:   o.RequestTimeout,
		MaxResponseBytes: o.MaxResponseBytes,
		UnhealthyAfter:   o.UnhealthyAfter,
		Logger:           o.Logger,
		Metrics:          o.Metrics,
		DiscoveryFailed: func(failed map[schema.GroupVersion]error) error {
			err := ErrResourceDiscoveryFailed(failed)
			return &err
		},
	}
}
