// SPDX-License-Identifier: Apache-2.0

package bench

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// replays are operators that make a client for each piece of work.
var replays = []struct {
	of                        string
	crds                      int
	clusters, objects, rounds int // objects of each round, over the clusters in turn
}{
	{"provider-kubernetes-543", 1000, 1, 300, 3},
	{"kcm", 60, 30, 30, 6},
}

// BenchmarkOnceReplay: the discovery requests and bytes of the first round and of all
// others, the heap that a round's clients take together, and the time of a round. The
// program (./replay) is built on stock, on stock with mappers from a Fleet, and, without a
// change, on the fork.
func BenchmarkOnceReplay(b *testing.B) {
	stock, fork := buildBoth(b, "./replay")
	for _, r := range replays {
		b.Run("of="+r.of, func(b *testing.B) {
			for _, way := range []struct {
				name, program string
				flags         []string
			}{{"stock", stock, nil}, {"provider", stock, []string{"-provider"}}, {"fork", fork, nil}} {
				b.Run("mapper="+way.name, func(b *testing.B) {
					for b.Loop() {
						replay(b, way.program, r.crds, r.clusters, append(way.flags,
							"-rounds", fmt.Sprint(r.rounds), "-objects", fmt.Sprint(r.objects))...)
					}
					b.ReportMetric(0, "ns/op")
				})
			}
		})
	}
}

// replay runs a program against clusters, which serve so many CRDs each.
func replay(b *testing.B, program string, crds, clusters int, flags ...string) {
	b.Helper()
	groups := fakeapi.Typical(crds, 1, 1)
	last := groups[len(groups)-1]
	kind := last.Versions[0].Resources[0].Kind
	var servers []*fakeapi.Server
	var addresses []string
	for range clusters {
		server := fakeapi.New(groups...)
		listener := httptest.NewServer(withObjects(server, kind, last.Name))
		defer listener.Close()
		servers, addresses = append(servers, server), append(addresses, listener.URL)
	}
	args := append(append(flags, "-pause", "-kind", kind+".v1."+last.Name), addresses...)
	cmd := exec.CommandContext(b.Context(), program, args...)
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	output, err2 := cmd.StdoutPipe()
	if err != nil || err2 != nil {
		b.Fatal(err, err2)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	var firstRequests, laterRequests, docBytes int
	var heap, took, all float64
	_, _ = io.WriteString(input, "next\n")
	for lines := bufio.NewScanner(output); lines.Scan(); {
		var round int
		if _, err := fmt.Sscan(lines.Text(), &round, &heap, &took); err != nil {
			b.Fatalf("%q: %v", lines.Text(), err)
		}
		all += took
		for _, server := range servers {
			for _, r := range server.TakeRequests() {
				docBytes += r.BodyBytes
				if round == 0 {
					firstRequests++
				} else {
					laterRequests++
				}
			}
		}
		_, _ = io.WriteString(input, "next\n") // the last one may find nobody
	}
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(firstRequests), "first-requests")
	b.ReportMetric(float64(laterRequests), "later-requests")
	b.ReportMetric(float64(docBytes), "doc-B")
	b.ReportMetric(heap, "heap-B")
	b.ReportMetric(all, "rounds-ns")
}

// withObjects serves objects beside the discovery of server. A path with a name in it is
// that of an object.
func withObjects(server *fakeapi.Server, kind, group string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if strings.Count(req.URL.Path, "/") < 5 {
			server.ServeHTTP(w, req)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"apiVersion": "%s/v1", "kind": "%s", "metadata": {"name": "%s"}}`, group, kind, filepath.Base(req.URL.Path))
	})
}

// buildBoth builds a program on controller-runtime as it is, and on the fork.
func buildBoth(b *testing.B, program string) (stock, fork string) {
	b.Helper()
	dir := b.TempDir()
	run := func(in string, args ...string) string {
		b.Helper()
		cmd := exec.CommandContext(b.Context(), "go", args...)
		cmd.Dir, cmd.Env = in, append(os.Environ(), "GOWORK=off")
		out, err := cmd.CombinedOutput()
		if err != nil {
			b.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return strings.TrimSpace(string(out))
	}
	stock, fork = filepath.Join(dir, "stock"), filepath.Join(dir, "fork")
	run(".", "build", "-o", stock, program)
	version := run(".", "list", "-m", "-f", "{{.Version}}", "sigs.k8s.io/controller-runtime")
	tree, mod := filepath.Join(dir, "tree"), filepath.Join(dir, "fork.mod")
	run("../..", "run", "./hack/fork", "-o", tree, "-version", version)
	for _, file := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(file)
		if err != nil {
			b.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, "fork"+filepath.Ext(file)), data, 0o600); err != nil {
			b.Fatal(err)
		}
	}
	ours, err := filepath.Abs("../..")
	if err != nil {
		b.Fatal(err)
	}
	run(".", "mod", "edit", "-replace=sigs.k8s.io/controller-runtime="+tree, "-replace=github.com/freshmapper/freshmapper="+ours, mod)
	run(".", "build", "-modfile="+mod, "-o", fork, program)
	return stock, fork
}
