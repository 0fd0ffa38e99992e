// SPDX-License-Identifier: Apache-2.0

package hostile

import (
	"go/ast"
	"go/parser"
	"go/token"
	"math/rand/v2"
	"net/http"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/freshmapper/freshmapper/internal/fakeapi"
)

// faults are all that the server in memory knows, each with random arguments, by
// the name of its function. TestEveryFault holds this to be complete.
func faults() map[string]func(r *rand.Rand) fakeapi.Fault {
	codes := []int{400, 401, 403, 406, 408, 409, 410, 415, 418, 429, 500, 502, 503, 504, 599}
	code := func(r *rand.Rand) int { return codes[r.IntN(len(codes))] }
	plain := func(f func() fakeapi.Fault) func(*rand.Rand) fakeapi.Fault {
		return func(*rand.Rand) fakeapi.Fault { return f() }
	}
	return map[string]func(r *rand.Rand) fakeapi.Fault{
		"Status":     func(r *rand.Rand) fakeapi.Fault { return fakeapi.Status(code(r), r.IntN(20)) },
		"StatusText": func(r *rand.Rand) fakeapi.Fault { return fakeapi.StatusText(append(codes, 404)[r.IntN(len(codes)+1)]) },
		"Text":       func(r *rand.Rand) fakeapi.Fault { return fakeapi.Text(404, "no such page\n") },
		"Empty":      func(r *rand.Rand) fakeapi.Fault { return fakeapi.Empty(append(codes, 404, 204)[r.IntN(len(codes)+2)]) },
		"LieETag": func(r *rand.Rand) fakeapi.Fault {
			return fakeapi.LieETag([]string{`"lie"`, "lie", `W/"lie"`}[r.IntN(3)])
		},
		"Huge": func(r *rand.Rand) fakeapi.Fault { return fakeapi.Huge(1 << (10 + r.IntN(15))) },
		"SlowDrip": func(r *rand.Rand) fakeapi.Fault {
			return fakeapi.SlowDrip(time.Duration(1+r.IntN(20)) * time.Millisecond)
		},
		"Redirect": func(*rand.Rand) fakeapi.Fault { return fakeapi.Redirect("http://elsewhere.invalid/apis") },
		"Times": func(r *rand.Rand) fakeapi.Fault {
			return fakeapi.Times(1+r.IntN(5), fakeapi.Status(code(r), 0))
		},
		"Func": plain(func() fakeapi.Fault {
			return fakeapi.Func("NoHeaders", func(req *http.Request) (*http.Response, error) {
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody, Request: req}, nil
			})
		}),
		"Refused": plain(fakeapi.Refused), "ResetMidBody": plain(fakeapi.ResetMidBody), "Truncated": plain(fakeapi.Truncated),
		"TruncatedClean": plain(fakeapi.TruncatedClean), "Timeout": plain(fakeapi.Timeout), "LoginPage": plain(fakeapi.LoginPage),
		"Unexpected304": plain(fakeapi.Unexpected304), "Empty200": plain(fakeapi.Empty200), "EmptyObject": plain(fakeapi.EmptyObject),
		"NotJSON": plain(fakeapi.NotJSON), "GarbageProtobuf": plain(fakeapi.GarbageProtobuf), "WrongContentType": plain(fakeapi.WrongContentType),
		"WrongKind": plain(fakeapi.WrongKind), "EmptyGroupList": plain(fakeapi.EmptyGroupList), "NullItems": plain(fakeapi.NullItems),
		"DuplicateGroups": plain(fakeapi.DuplicateGroups), "NoETag": plain(fakeapi.NoETag),
	}
}

// believable reports whether a fault is well-formed and says that something is
// absent. If it is the answer to the last read, of a live list or a live version,
// nobody can tell it from the truth. So such faults hit only the document, and the
// groups of which nothing is asserted.
func believable(name string) bool { return name == "EmptyGroupList" || name == "NullItems" }

// place returns a function that reports whether a request is to a random part of
// the server.
func place(r *rand.Rand, believable bool) func(*http.Request) bool {
	group := churned[r.IntN(len(churned))]
	places := []func(*http.Request) bool{
		fakeapi.InGroup(group), fakeapi.At("/api", "/apis"), fakeapi.At("/apis"), fakeapi.At("/api"),
	}
	if !believable {
		places = append(places, fakeapi.All(), fakeapi.Under("/apis"), fakeapi.Under("/api"),
			fakeapi.InGroup("steady.example.com"), fakeapi.At("/apis/steady.example.com/v1"), sometimes(r.Uint64(), fakeapi.All()))
	}
	return places[r.IntN(len(places))]
}

// sometimes returns a place that has half of another place's requests, at random.
func sometimes(seed uint64, other func(*http.Request) bool) func(*http.Request) bool {
	return func(req *http.Request) bool {
		return other(req) && rand.New(rand.NewPCG(seed, uint64(time.Now().UnixNano()))).IntN(2) == 0
	}
}

// Every function of the server in memory that makes a fault is in the table.
func TestEveryFault(t *testing.T) {
	files, err := filepath.Glob("../../../internal/fakeapi/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%v in %v", err, files)
	}
	made := 0
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, decl := range parsed.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || f.Recv != nil || !f.Name.IsExported() || f.Type.Results == nil {
				continue
			}
			if name, ok := f.Type.Results.List[0].Type.(*ast.Ident); !ok || name.Name != "Fault" {
				continue
			}
			if made++; faults()[f.Name.Name] == nil {
				t.Errorf("%s is not in the table", f.Name.Name)
			}
		}
	}
	if made != len(faults()) {
		t.Errorf("%d faults in the table, of %d", len(faults()), made)
	}
}
