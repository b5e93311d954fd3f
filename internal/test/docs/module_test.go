// SPDX-License-Identifier: MPL-2.0

package docs

import (
	"io/fs"
	"os"

	"github.com/hashicorp/hcl/v2/hclsyntax"
)

func isModule(block *hclsyntax.Block) bool { return block.Type == "module" }

// modules are the directories below a directory, without the files in it: what a snippet from there calls as a
// module.
type modules struct{ fs.FS }

func modulesIn(dir string) fs.FS { return modules{os.DirFS(dir)} }

// ReadDir implements fs.ReadDirFS.
func (m modules) ReadDir(name string) ([]fs.DirEntry, error) {
	entries, err := fs.ReadDir(m.FS, name)
	if name != "." {
		return entries, err
	}

	var dirs []fs.DirEntry

	for _, entry := range entries {
		if entry.IsDir() {
			dirs = append(dirs, entry)
		}
	}

	return dirs, err
}
