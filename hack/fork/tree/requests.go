// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"cmp"
	"fmt"
	"regexp"
	"strings"
)

// requesters are the files of upstream's client with methods that send requests, with the
// field of the receiver that knows how to follow the mapper.
var requesters = []struct{ file, follower string }{
	{"typed_client.go", "resources."},
	{"unstructured_client.go", "resources."},
	{"metadata_client.go", ""},
	{"watch.go", "<BASE>.typedClient.resources."},
	{"namespaced_client.go", ""}, // calls others, with a note of its namespace
}

var (
	// request matches the first line of a method that is exported and takes a context: its
	// receiver, name, parameters and results.
	request = regexp.MustCompile(`(?m)^func \((\w+) (\S+)\) ([A-Z]\w*)\((ctx context\.Context, .*)\) (\(\S+, error\)|error) \{$`)
	// like matches all such methods, whatever their form.
	like = regexp.MustCompile(`(?m)^func \(.*\) [A-Z]\w*\(\s*ctx `)
	// typed matches a parameter with its type.
	typed = regexp.MustCompile(`(\w+) (\.\.\.)?[^,]*`)
)

// follow gives each method that sends a request a name with "Once" at its end. In its place
// comes one that calls it, and follows the mapper.
func (d *draft) follow() error {
	for _, r := range requesters {
		upstream, err := d.upstream(clientDir + "/" + r.file)
		if err != nil {
			return err
		}
		heads := request.FindAllStringSubmatch(string(upstream), -1)
		if len(heads) == 0 || len(heads) != len(like.FindAll(upstream, -1)) {
			return fmt.Errorf("upstream's %s has methods that send requests and have another form: this release needs a look", r.file)
		}
		text := string(upstream)
		for _, head := range heads {
			with := following(head[1], head[2], head[3], head[4], head[5], r.follower)
			if clientDir+"/"+r.file == namespacedFile {
				of := regexp.MustCompile(`\b` + head[1] + `(\.namespacedclient)?\.namespace\b`).FindString(text)
				with = head[0] + "\n\tctx = named(ctx, " + of + ")"
			}
			text = strings.Replace(text, head[0], d.noted.fill(with), 1)
		}
		d.files[clientDir+"/"+r.file] = []byte(text)
	}
	return nil
}

// following is a method that follows the mapper, and the head of the one that it calls.
func following(receiver, typeName, name, params, results, follower string) string {
	object, args := "obj", typed.ReplaceAllString(params, "$1$2")
	if strings.Contains(args, " list,") {
		object = "list"
	}
	does := map[string]string{"Get": "reads", "GetSubResource": "reads", "Watch": "reads", "List": "lists"}[name]
	if does == "" {
		does = "writes"
	}
	with := map[string]string{"DeleteAllOf": "named(ctx, (&DeleteAllOfOptions{}).ApplyOptions(opts).Namespace)"}[name]
	named, assigned := "err error", "err"
	if first, two := strings.CutSuffix(results, ", error)"); two {
		named, assigned = "result "+first[1:]+", err error", "result, err"
	}
	return fmt.Sprintf(`func (%s %s) %s(%s) (%s) {
	err = %[1]s.%[6]sfollowing(%[13]s, %[7]s, %[8]s, func(at *resourceMeta) (err error) {
		%[9]s = %[1]s.at(at).%[10]sOnce(%[11]s)
		return err
	})
	return %[9]s
}

func (%[1]s %[2]s) %[10]sOnce(%[4]s) %[12]s {`,
		receiver, typeName, name, params, named, follower, object, does, assigned, strings.ToLower(name[:1])+name[1:], args, results, cmp.Or(with, "ctx"))
}
