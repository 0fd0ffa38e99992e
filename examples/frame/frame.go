// SPDX-License-Identifier: Apache-2.0

// Package frame is what the programs beside it share: a main function, flags, a server of their
// own, and which kubeconfigs they take.
package frame

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/http"
	"os"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
	"sigs.k8s.io/controller-runtime/pkg/log/zap"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	metrics "sigs.k8s.io/controller-runtime/pkg/metrics/server"
)

// Main runs a program until a signal comes. It ends the process with status 1 if the program
// fails.
func Main(name string, run func(ctx context.Context, args []string) error) {
	ctrl.SetLogger(zap.New())
	err := run(ctrl.SetupSignalHandler(), os.Args[1:])
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}

// Parse parses the flags that addTo defines, and -kubeconfig. Numbers and durations must be
// positive in all of these programs.
func Parse(name string, args []string, addTo func(*flag.FlagSet)) (err error) {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	config.RegisterFlags(flags)
	addTo(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	flags.VisitAll(func(f *flag.Flag) {
		positive := true
		if value, ok := f.Value.(flag.Getter); ok {
			switch v := value.Get().(type) {
			case int:
				positive = v > 0
			case time.Duration:
				positive = v > 0
			}
		}
		if !positive {
			err = errors.Join(err, fmt.Errorf("-%s must be positive, not %s", f.Name, f.Value))
		}
	})
	return err
}

// Manager is the flags of a program whose manager may be one of several.
type Manager struct {
	Namespace      string // a flag of the program's own; "" is all
	metricsAddress string
	leaderElection bool
}

// AddTo defines flags.
func (m *Manager) AddTo(flags *flag.FlagSet) {
	flags.StringVar(&m.metricsAddress, "metrics-bind-address", "0", "serve metrics at this address, 0 for none")
	flags.BoolVar(&m.leaderElection, "leader-elect", false, "run only while holding the leader lease")
}

// Options are those of a manager that watches the namespace.
func (m *Manager) Options(name string) ctrl.Options {
	opts := ctrl.Options{
		Metrics:          metrics.Options{BindAddress: m.metricsAddress},
		LeaderElection:   m.leaderElection,
		LeaderElectionID: name + ".example.com",
	}
	if m.Namespace != "" {
		opts.Cache.DefaultNamespaces = map[string]cache.Config{m.Namespace: {}}
	}
	return opts
}

// SelfContained refuses a kubeconfig that would run programs or read files here: the
// right to write a Secret must not give the operator's own rights.
func SelfContained(cfg *rest.Config) error {
	files := cfg.BearerTokenFile + cfg.CAFile + cfg.CertFile + cfg.KeyFile
	if cfg.ExecProvider != nil || cfg.AuthProvider != nil || files != "" {
		return errors.New("the kubeconfig must hold its credentials itself, not name a program or a file")
	}
	return nil
}

// Server serves a program's own pages. A manager runs it.
func Server(address string, handler http.Handler) *manager.Server {
	return &manager.Server{
		Name:            "status",
		Server:          &http.Server{Addr: address, Handler: handler, ReadHeaderTimeout: 10 * time.Second},
		ShutdownTimeout: ptr.To(5 * time.Second),
	}
}
