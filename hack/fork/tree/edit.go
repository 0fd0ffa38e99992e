// SPDX-License-Identifier: Apache-2.0

package tree

import (
	"fmt"
	"strings"
)

// An edit replaces a piece of one of upstream's files. If the piece is not there exactly once, that is an
// error: the tool never guesses. What it does not replace stays byte for byte.
type edit struct{ file, old, with string }

// edits are what is done to upstream's files. Upstream's constructors get other names, and those of ours
// take theirs. The handler of owners needs the scope of an owner for each event, also of a kind that is gone.
var edits = []edit{
	{"pkg/client/client.go", "\nfunc New(config ", "\nfunc newUpstream(config "},
	{"pkg/client/watch.go", "\nfunc NewWithWatch(config ", "\nfunc newUpstreamWithWatch(config "},
	{"pkg/client/namespaced_client.go", "\nfunc NewNamespacedClient(c ", "\nfunc newUpstreamNamespaced(c "},
	{"pkg/cache/cache.go", "\nfunc New(cfg ", "\nfunc newUpstream(cfg "},
	{"pkg/handler/enqueue_owner.go", "\t\tmapper:    mapper,\n", "\t\tmapper:    following(mapper),\n"},
}

func (e edit) apply(text string) (string, error) {
	if n := strings.Count(text, e.old); n != 1 {
		return "", fmt.Errorf("%s has %q %d times, and not once: this release needs a look before the tool can edit it", e.file, strings.TrimSpace(e.old), n)
	}
	return strings.Replace(text, e.old, e.with, 1), nil
}

// edit edits upstream's files.
func (d *draft) edit() error {
	for _, e := range edits {
		upstream, err := d.upstream(e.file)
		if err != nil {
			return err
		}
		edited, err := e.apply(string(upstream))
		if err != nil {
			return fmt.Errorf("upstream's %w", err)
		}
		d.files[e.file] = []byte(edited)
	}
	return nil
}
