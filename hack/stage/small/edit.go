// SPDX-License-Identifier: Apache-2.0

package small

import (
	"github.com/freshmapper/freshmapper/hack/fork/source"
	"github.com/freshmapper/freshmapper/hack/fork/tree"
)

// file is one of upstream's, while a patch edits it.
type file struct{ *source.File }

func edit(files tree.Files, name string, do func(file)) error {
	return files.Edit(name, func(f *source.File) { do(file{f}) })
}
