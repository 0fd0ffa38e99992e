// SPDX-License-Identifier: Apache-2.0

package adopters

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing/fstest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/cert"
	"sigs.k8s.io/controller-runtime/pkg/envtest"

	"github.com/freshmapper/freshmapper/hack/control"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
	"github.com/freshmapper/freshmapper/hack/proof/internal/report"
)

const (
	giveUp  = 60 * time.Second
	settled = 30 * time.Second // for what the API server itself has to do
	look    = 100 * time.Millisecond

	functionAddress = "127.0.0.1:19444" // operators.yaml has it, too
)

// scenario is what happens to an operator. operators.yaml explains the fields.
type scenario struct {
	About, Main string
	Args        []string
	CRDs        []struct{ Folder, Module, VersionOf string }
	Edits       []edit
	Steps       []struct {
		What  string
		Must  []string
		Do    []action
		Until struct {
			Object    *unstructured.Unstructured
			Condition string
		}
	}
}

// edit replaces a text that a file of the operator has exactly once, on the sides of In; on all if In is empty.
type edit struct {
	File, Old, New string
	In             []string
}

// apply edits the file in a tree.
func (e edit) apply(dir string) error {
	file := filepath.Join(dir, filepath.FromSlash(e.File))
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	if n := bytes.Count(text, []byte(e.Old)); n != 1 {
		return fmt.Errorf("%s has %q %d times instead of once: correct edits in operators.yaml", e.File, e.Old, n)
	}
	return os.WriteFile(file, bytes.Replace(text, []byte(e.Old), []byte(e.New), 1), 0o644)
}

// action is one of these.
type action struct {
	Apply, Remove, Publish *unstructured.Unstructured
	Pause                  metav1.Duration
	Restart                bool
}

// live runs the scenario on each side, with an API server of its own.
func (c *adoption) live(p *report.Page) {
	assets, err := control.Assets()
	c.Must(err)
	rows := make([][]string, len(c.Live.Steps))
	for i, s := range c.Live.Steps {
		rows[i] = []string{s.What}
	}
	for _, side := range sides {
		times := slices.Repeat([]string{"–"}, len(rows))
		if c.trees[side] != "" {
			var wrong string
			if times, wrong = c.liveOn(side, assets); wrong != "" {
				c.Errorf("with %s, %s", side, wrong)
			}
		}
		for i := range rows {
			rows[i] = append(rows[i], times[i])
		}
	}
	p.Text("### %s %s, controller-runtime %s\n\n%s\n", c.Name, c.Version, c.requires(tree.Module), c.Live.About)
	p.Table(append([]string{"what happens"}, sides...), rows...)
	p.Text("%s of kube-apiserver.\n", c.output("", filepath.Join(assets, "kube-apiserver"), "--version"))
}

// cluster is an API server with an operator, and a client that needs no mapper to know the paths:
// the scenarios are about programs that need one.
type cluster struct {
	*adoption
	client   dynamic.Interface
	sources  *httptest.Server // of the files in tarballs
	tarballs string
}

// liveOn returns how long each step took, and the first that did not come although it must on this side.
func (c *adoption) liveOn(side, assets string) (times []string, wrong string) {
	dir, missed := c.trees[side], false
	for _, e := range c.Live.Edits {
		if len(e.In) == 0 || slices.Contains(e.In, side) {
			c.Must(e.apply(dir))
		}
	}
	c.output(dir, "go", "build", "-trimpath", "-o", dir+".bin", c.Live.Main)
	plane, err := control.Start(c.Ctx, assets, 1)
	c.Must(err)
	defer func() { _ = plane.Stop() }() // what may be left is in a temporary folder
	cfg := plane.Servers[0].Config()
	on := &cluster{adoption: c, client: dynamic.NewForConfigOrDie(cfg), tarballs: c.TempDir()}
	on.sources = httptest.NewServer(http.FileServer(http.Dir(on.tarballs)))
	defer on.sources.Close()
	function := on.startFunction(filepath.Join(dir, "certs"))
	defer function.Close()
	for _, of := range c.Live.CRDs {
		from := c.trees["upstream"]
		if of.Module != "" {
			from = c.download(of.Module, c.requires(of.VersionOf))
		}
		crds, err := envtest.InstallCRDs(cfg, envtest.CRDInstallOptions{Paths: []string{filepath.Join(from, of.Folder)}, ErrorIfPathMissing: true, MaxTime: settled})
		if err != nil || len(crds) == 0 {
			c.Fatalf("%d CRDs in %s of %s: correct crds in operators.yaml: %v", len(crds), of.Folder, from, err)
		}
	}
	kubeconfig := filepath.Join(c.TempDir(), "kubeconfig")
	c.Must(os.WriteFile(kubeconfig, fmt.Appendf(nil, `{apiVersion: v1, kind: Config, current-context: c, contexts: [{name: c, context: {cluster: c, user: c}}],
clusters: [{name: c, cluster: {server: %q, insecure-skip-tls-verify: true}}], users: [{name: c, user: {token: %q}}]}`, cfg.Host, cfg.BearerToken), 0o600))
	var said bytes.Buffer
	var operator *exec.Cmd
	start := func() {
		operator = c.command(dir, []string{"KUBECONFIG=" + kubeconfig}, append([]string{dir + ".bin"}, c.Live.Args...)...)
		operator.Stdout, operator.Stderr = &said, &said
		c.Must(operator.Start())
	}
	stop := func() {
		_ = operator.Process.Kill()
		_ = operator.Wait()
	}
	start()
	defer func() {
		stop()
		if missed || c.Failed() {
			c.Logf("the operator said at last:\n%s", said.Bytes()[max(0, said.Len()-1000):])
		}
	}()
	var began time.Time
	for _, s := range c.Live.Steps {
		for _, a := range s.Do {
			if a.Restart {
				stop()
				start()
			}
			on.do(s.What, a)
			began = time.Now()
		}
		err := on.eventually(giveUp, func() error { return on.is(s.Until.Object, s.Until.Condition) })
		took := report.Rounded(time.Since(began))
		if err != nil {
			took, missed = fmt.Sprintf("**not within %v**: %v", giveUp, err), true
			must := s.Must
			if len(must) == 0 {
				must = sides[1:]
			}
			if slices.Contains(must, side) {
				wrong = cmp.Or(wrong, s.What+": "+took)
			}
		}
		c.Must(c.Ctx.Err())
		c.Logf("%s: %s: %s", side, s.What, took)
		times = append(times, took)
	}
	return times, wrong
}

// of returns the client of an object's kind.
func (c *cluster) of(o *unstructured.Unstructured) dynamic.ResourceInterface {
	plural, _ := meta.UnsafeGuessKindToResource(o.GroupVersionKind())
	return c.client.Resource(plural).Namespace(o.GetNamespace()) // "" is the cluster
}

// eventually tries until there is no error.
func (c *cluster) eventually(most time.Duration, try func() error) (err error) {
	_ = wait.PollUntilContextTimeout(c.Ctx, look, most, true, func(context.Context) (bool, error) {
		err = try()
		return err == nil, nil
	})
	return err
}

// do does what must work on an API server.
func (c *cluster) do(what string, a action) {
	remove := c.remove(a.Remove)
	err := c.eventually(settled, func() error {
		switch {
		case a.Apply != nil:
			return c.apply(a.Apply)
		case a.Publish != nil:
			return c.publish(a.Publish)
		case a.Remove != nil:
			return remove()
		}
		return nil
	})
	if err != nil {
		c.Fatalf("%s: %v", what, err)
	}
	time.Sleep(a.Pause.Duration)
}

// apply applies an object and its status. A CRD must be served.
func (c *cluster) apply(o *unstructured.Unstructured) error {
	by := metav1.ApplyOptions{FieldManager: "proof", Force: true}
	_, err := c.of(o).Apply(c.Ctx, o.GetName(), o, by)
	if _, has := o.Object["status"]; has && err == nil {
		_, err = c.of(o).ApplyStatus(c.Ctx, o.GetName(), o, by)
	}
	if err != nil || o.GetKind() != "CustomResourceDefinition" {
		return err
	}
	plural, group, _ := strings.Cut(o.GetName(), ".")
	versions, _, _ := unstructured.NestedSlice(o.Object, "spec", "versions")
	version, _ := versions[0].(map[string]any)["name"].(string)
	_, err = c.client.Resource(schema.GroupVersionResource{Group: group, Version: version, Resource: plural}).List(c.Ctx, metav1.ListOptions{Limit: 1})
	return errors.Join(c.is(o, "Established"), err)
}

// remove makes a function that deletes an object, and returns an error until it is gone. The operator may have
// put another one in its place by then.
func (c *cluster) remove(o *unstructured.Unstructured) func() error {
	var uid types.UID
	return func() error {
		is, err := c.of(o).Get(c.Ctx, o.GetName(), metav1.GetOptions{})
		if apierrors.IsNotFound(err) || err == nil && uid != "" && uid != is.GetUID() {
			return nil
		}
		if err == nil {
			uid = is.GetUID()
			this := metav1.NewUIDPreconditions(string(uid))
			err = c.of(o).Delete(c.Ctx, o.GetName(), metav1.DeleteOptions{Preconditions: this})
		}
		return errors.Join(fmt.Errorf("%s is still there", o.GetName()), err)
	}
}

// publish does source-controller's part: it serves an object as the tarball of a chart, and
// writes the tarball's address into the status of an OCIRepository that is named like the kind.
func (c *cluster) publish(o *unstructured.Unstructured) error {
	name := strings.ToLower(o.GetKind())
	manifest, err := o.MarshalJSON()
	var data bytes.Buffer
	packed := gzip.NewWriter(&data)
	files := tar.NewWriter(packed)
	err = errors.Join(err, files.AddFS(fstest.MapFS{
		"chart/Chart.yaml":            {Data: []byte("{apiVersion: v2, version: 1.0.0, name: " + name + "}"), Mode: 0o644},
		"chart/templates/object.yaml": {Data: manifest, Mode: 0o644},
	}), files.Close(), packed.Close())
	sum := fmt.Sprintf("%x", sha256.Sum256(data.Bytes()))
	c.Must(errors.Join(err, os.WriteFile(filepath.Join(c.tarballs, sum+".tar.gz"), data.Bytes(), 0o644)))
	return c.apply(&unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "source.toolkit.fluxcd.io/v1", "kind": "OCIRepository",
		"metadata": map[string]any{"name": name, "namespace": "default"},
		"spec":     map[string]any{"interval": "1h", "url": "oci://example.com/" + name},
		"status": map[string]any{"observedGeneration": int64(1), "artifact": map[string]any{
			"digest": "sha256:" + sum, "revision": "1.0.0@sha256:" + sum, "size": int64(data.Len()), "lastUpdateTime": time.Now().UTC().Format(time.RFC3339),
			"path": name + "/" + sum + ".tar.gz", "url": c.sources.URL + "/" + sum + ".tar.gz",
		}},
	}})
}

// is returns an error unless an object is there and a condition, if any, is True for its present generation.
func (c *cluster) is(o *unstructured.Unstructured, kind string) error {
	is, err := c.of(o).Get(c.Ctx, o.GetName(), metav1.GetOptions{})
	if err != nil || kind == "" {
		return err
	}
	conditions, _, _ := unstructured.NestedSlice(is.Object, "status", "conditions")
	for _, each := range conditions {
		condition, _ := each.(map[string]any)
		if seen, ok := condition["observedGeneration"].(int64); condition["type"] != kind || ok && seen != 0 && seen < is.GetGeneration() {
			continue
		}
		if condition["status"] == "True" {
			return nil
		}
		said := strings.Join(strings.Fields(fmt.Sprintf("%s is %v: %v", kind, condition["status"], condition["message"])), " ")
		return errors.New(said[:min(len(said), 200)])
	}
	return errors.New("no condition " + kind + " of the present generation")
}

// startFunction starts Crossplane's composition function, which composes an XR of the object that is the input of the
// pipeline's step. It writes its certificate, which is its own authority's, and the key into a folder.
func (c *cluster) startFunction(certs string) *httptest.Server {
	certificate, key, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
	c.Must(err)
	pair, err := tls.X509KeyPair(certificate, key)
	c.Must(err)
	c.Must(os.CopyFS(certs, fstest.MapFS{"ca.crt": {Data: certificate}, "tls.crt": {Data: certificate}, "tls.key": {Data: key}}))
	l, err := net.Listen("tcp", functionAddress)
	c.Must(err)
	s := &httptest.Server{Listener: l, EnableHTTP2: true, TLS: &tls.Config{Certificates: []tls.Certificate{pair}}, Config: &http.Server{Handler: http.HandlerFunc(compose)}}
	s.StartTLS()
	return s
}

// compose answers a RunFunctionRequest of gRPC: its input, field 4, is a composed resource and ready.
func compose(w http.ResponseWriter, r *http.Request) {
	request, _ := io.ReadAll(r.Body)
	fields := map[byte][]byte{}
	for rest := request[5:]; len(rest) > 0; { // after gRPC's own; each field is a message
		size, n := binary.Uvarint(rest[1:])
		end := 1 + n + int(size)
		fields[rest[0]>>3], rest = rest[1+n:end], rest[end:]
	}
	field := func(number byte, value ...byte) []byte {
		return append(binary.AppendUvarint([]byte{number<<3 | 2}, uint64(len(value))), value...)
	}
	resource := append(field(1, fields[4]...), 3<<3, 1)                                                 // resource, ready
	answer := field(2, field(2, append(field(1, []byte("object")...), field(2, resource...)...)...)...) // desired.resources["object"]
	w.Header().Set("Content-Type", "application/grpc")
	w.Header().Set(http.TrailerPrefix+"Grpc-Status", "0")
	_, _ = w.Write(append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(answer))), answer...))
}

// tested is a package with tests, and all that these import.
type tested struct {
	path string
	deps []string
}

func (p tested) has(pkg string) bool { return slices.Contains(p.deps, pkg) }

// listed lists the packages that have tests.
func (c *adoption) listed(dir string, patterns ...string) (all []tested) {
	args := append([]string{"go", "list", "-e", "-test", "-f", `{{.ImportPath}} {{join .Deps " "}}`}, patterns...)
	for line := range strings.Lines(string(c.output(dir, args...))) {
		deps := strings.Fields(line)
		if path, test := strings.CutSuffix(deps[0], ".test"); test {
			all = append(all, tested{path, deps})
		}
	}
	return all
}

// tests makes a function that runs the tests of a package in a tree.
func (c *adoption) tests(p tested, env []string, flags ...string) func(dir string) states {
	return func(dir string) states {
		specs := filepath.Join(c.TempDir(), "specs.json")
		args := append(append([]string{"go", "test", "-json", "-count=1"}, flags...), p.path)
		if p.has("github.com/onsi/ginkgo/v2") {
			args = append(args, "-args", "-ginkgo.json-report="+specs)
		}
		said, err := c.command(dir, env, args...).Output()
		got := states{}
		for line := range bytes.Lines(said) {
			var event struct{ Action, Test string }
			if json.Unmarshal(line, &event) == nil && event.Test != "" && ends[event.Action] != absent {
				got[event.Test] = ends[event.Action]
			}
		}
		if err != nil && !slices.Contains(slices.Collect(maps.Values(got)), failed) {
			got[""] = failed
		}
		if text, none := os.ReadFile(specs); none == nil {
			got.addSpecs(text)
		}
		return got
	}
}

// address matches a pointer that is printed in a name. It differs from run to run.
var address = regexp.MustCompile(`0x[0-9a-f]{6,}`)

// addSpecs adds the specs of a report of ginkgo's, which go test does not know. Of those with the
// same name each gets a number. What comes before and after counts only if it fails.
func (s states) addSpecs(text []byte) {
	var suites []struct {
		SuiteDescription string
		SpecReports      []struct {
			ContainerHierarchyTexts           []string
			LeafNodeType, LeafNodeText, State string
		}
	}
	if json.Unmarshal(text, &suites) != nil {
		s["ginkgo's report"] = failed
	}
	for _, suite := range suites {
		for _, spec := range suite.SpecReports {
			is := max(ends[spec.State], failed)
			name := suite.SuiteDescription + ": " + strings.Join(append(spec.ContainerHierarchyTexts, spec.LeafNodeText), " ")
			if spec.LeafNodeType != "It" {
				if is != failed {
					continue
				}
				name = suite.SuiteDescription + ": " + spec.LeafNodeType
			}
			name = address.ReplaceAllString(name, "0x…")
			unique := name
			for n := 2; s[unique] != absent; n++ {
				unique = fmt.Sprintf("%s (%d)", name, n)
			}
			s[unique] = is
		}
	}
}
