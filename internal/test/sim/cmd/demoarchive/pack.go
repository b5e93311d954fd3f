// SPDX-License-Identifier: MPL-2.0

package main

import (
	"archive/tar"
	"compress/gzip"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"slices"
	"time"
)

//go:embed archive.md
var readme string

// write writes the archive to a file. If it fails, it leaves none.
func write(name, top string, files map[string]string, modified time.Time) error {
	file, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("creating the archive: %w", err)
	}

	if err := errors.Join(pack(file, top, files, modified), file.Close()); err != nil {
		return errors.Join(fmt.Errorf("writing %s: %w", name, err), os.Remove(name))
	}

	return nil
}

// pack writes the files, and the README, below one directory. The same files give the same bytes: owners are not
// written, and the files are sorted.
func pack(out io.Writer, top string, files map[string]string, modified time.Time) error {
	compressed, err := gzip.NewWriterLevel(out, gzip.BestCompression)
	if err != nil {
		return err
	}

	archive := tar.NewWriter(compressed)
	add := func(name string, content []byte, mode int64) error {
		header := &tar.Header{
			Typeflag: tar.TypeReg, Name: path.Join(top, name), Size: int64(len(content)), Mode: mode, ModTime: modified,
			Format: tar.FormatUSTAR,
		}
		if err := archive.WriteHeader(header); err != nil {
			return err
		}

		_, err := archive.Write(content)

		return err
	}

	if err := add("README.md", []byte(readme), 0o644); err != nil {
		return err
	}

	for _, name := range slices.Sorted(maps.Keys(files)) {
		content, err := os.ReadFile(files[name])
		if err != nil {
			return err
		}

		info, err := os.Stat(files[name])
		if err != nil {
			return err
		}

		mode := int64(0o644)
		if info.Mode()&0o111 != 0 {
			mode = 0o755
		}

		if err := add(name, content, mode); err != nil {
			return err
		}
	}

	return errors.Join(archive.Close(), compressed.Close())
}
