// SPDX-License-Identifier: MPL-2.0

package real

import (
	"archive/tar"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/types"
)

// images is a registry on the network of the machines, which use it in place of every registry. It generates each
// layer of the programs when it is requested.
type images struct {
	server *httptest.Server
	host   string

	mutex  sync.Mutex
	layers map[v1.Hash]*layer
	memory registry.BlobHandler
}

// serveImages starts to serve.
func serveImages(logs io.Writer) (*images, error) {
	made := &images{layers: map[v1.Hash]*layer{}, memory: registry.NewInMemoryBlobHandler()}

	listener, err := net.Listen("tcp", net.JoinHostPort(gateway.String(), "5000"))
	if err != nil {
		return nil, fmt.Errorf("listening for the registry: %w", err)
	}

	made.host = listener.Addr().String()
	made.server = &httptest.Server{Listener: listener, Config: &http.Server{Handler: made.handler(logs)}}
	made.server.Start()

	return made, nil
}

// handler serves the images. A request for the rest of a blob gets all of it: the library's registry rejects a range
// without an end, which containerd sends to continue a pull that was cut off, and containerd skips what it already
// has.
func (i *images) handler(logs io.Writer) http.Handler {
	served := registry.New(registry.WithBlobHandler(i), registry.Logger(log.New(logs, "", log.LstdFlags)))

	return http.HandlerFunc(func(writer http.ResponseWriter, request *http.Request) {
		if strings.HasSuffix(request.Header.Get("Range"), "-") {
			request.Header.Del("Range")
		}

		served.ServeHTTP(writer, request)
	})
}

// push creates an image with one layer. The reference is that of the real registry.
func (i *images) push(ctx context.Context, reference string, l *layer, config v1.Config) error {
	if err := l.measure(); err != nil {
		return fmt.Errorf("making the image %s: %w", reference, err)
	}

	i.mutex.Lock()
	i.layers[l.digest] = l
	i.mutex.Unlock()

	image, err := mutate.AppendLayers(mutate.MediaType(empty.Image, types.OCIManifestSchema1), l)
	if err == nil {
		image, err = mutate.ConfigFile(image, withConfig(image, config))
	}

	if err != nil {
		return fmt.Errorf("making the image %s: %w", reference, err)
	}

	// A mirror is asked for the path below the name of the registry.
	_, path, _ := strings.Cut(reference, "/")

	tag, err := name.NewTag(i.host+"/"+path, name.Insecure)
	if err != nil {
		return err
	}

	return remote.Write(tag, image, remote.WithContext(ctx))
}

func withConfig(image v1.Image, config v1.Config) *v1.ConfigFile {
	// An image that was just created has one.
	file, _ := image.ConfigFile()
	changed := file.DeepCopy()
	changed.Config, changed.OS, changed.Architecture = config, "linux", architecture

	return changed
}

// Get implements [registry.BlobHandler].
func (i *images) Get(ctx context.Context, repo string, digest v1.Hash) (io.ReadCloser, error) {
	if l := i.layer(digest); l != nil {
		return l.Compressed()
	}

	return i.memory.Get(ctx, repo, digest)
}

// Stat implements [registry.BlobStatHandler].
func (i *images) Stat(ctx context.Context, repo string, digest v1.Hash) (int64, error) {
	if l := i.layer(digest); l != nil {
		return l.size, nil
	}

	stat, ok := i.memory.(registry.BlobStatHandler)
	if !ok {
		return 0, registry.ErrNotFound
	}

	return stat.Stat(ctx, repo, digest)
}

// Put implements [registry.BlobPutHandler].
func (i *images) Put(ctx context.Context, repo string, digest v1.Hash, content io.ReadCloser) error {
	put, ok := i.memory.(registry.BlobPutHandler)
	if !ok {
		return errors.ErrUnsupported
	}

	return put.Put(ctx, repo, digest, content)
}

func (i *images) layer(digest v1.Hash) *layer {
	i.mutex.Lock()
	defer i.mutex.Unlock()

	return i.layers[digest]
}

// file is a file of a layer: a copy of source if it is set, otherwise a symbolic link if link is set, otherwise
// content.
type file struct {
	path, source, link string
	mode               fs.FileMode
	content            []byte
}

// layer is an uncompressed archive of files. It is generated whenever it is read, so that it takes no space.
type layer struct {
	files  []file
	digest v1.Hash
	size   int64
}

func program(source, path string) file { return file{path: path, source: source, mode: 0o755} }

// tree returns the files below a directory whose path is wanted.
func tree(dir string, wanted func(path string) bool) ([]file, error) {
	var files []file

	err := filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}

		relative, err := filepath.Rel(dir, path)
		if err != nil || !wanted(relative) {
			return err
		}

		if entry.Type() == fs.ModeSymlink {
			target, err := os.Readlink(path)
			files = append(files, file{path: relative, link: target})

			return err
		}

		info, err := entry.Info()
		if err == nil && info.Mode().IsRegular() {
			files = append(files, file{path: relative, source: path, mode: info.Mode().Perm()})
		}

		return err
	})

	return files, err
}

// measure generates it once, for its digest and size.
func (l *layer) measure() error {
	counter := &counter{hash: sha256.New()}
	if err := l.write(counter); err != nil {
		return err
	}

	l.size = counter.size
	l.digest = v1.Hash{Algorithm: "sha256", Hex: hex.EncodeToString(counter.hash.Sum(nil))}

	return nil
}

type counter struct {
	hash hash.Hash
	size int64
}

func (c *counter) Write(p []byte) (int, error) {
	c.size += int64(len(p))

	return c.hash.Write(p)
}

func (l *layer) write(to io.Writer) error {
	archive := tar.NewWriter(to)

	for _, one := range l.files {
		if err := one.write(archive); err != nil {
			return err
		}
	}

	return archive.Close()
}

func (f file) write(archive *tar.Writer) error {
	header := &tar.Header{Name: filepath.ToSlash(f.path), Mode: int64(f.mode), Typeflag: tar.TypeReg}

	if f.link != "" {
		header.Typeflag, header.Linkname, header.Mode = tar.TypeSymlink, f.link, 0o777

		return archive.WriteHeader(header)
	}

	if f.source == "" {
		header.Size = int64(len(f.content))

		err := archive.WriteHeader(header)
		if err == nil {
			_, err = archive.Write(f.content)
		}

		return err
	}

	source, err := os.Open(f.source)
	if err != nil {
		return err
	}
	defer source.Close()

	info, err := source.Stat()
	if err != nil {
		return err
	}

	header.Size = info.Size()
	if err := archive.WriteHeader(header); err != nil {
		return err
	}

	_, err = io.Copy(archive, source)

	return err
}

// Digest implements [v1.Layer].
func (l *layer) Digest() (v1.Hash, error) { return l.digest, nil }

// DiffID implements [v1.Layer].
func (l *layer) DiffID() (v1.Hash, error) { return l.digest, nil }

// Size implements [v1.Layer].
func (l *layer) Size() (int64, error) { return l.size, nil }

// MediaType implements [v1.Layer].
func (l *layer) MediaType() (types.MediaType, error) { return types.OCIUncompressedLayer, nil }

// Compressed implements [v1.Layer].
func (l *layer) Compressed() (io.ReadCloser, error) {
	reader, writer := io.Pipe()

	go func() { writer.CloseWithError(l.write(writer)) }()

	return reader, nil
}

// Uncompressed implements [v1.Layer].
func (l *layer) Uncompressed() (io.ReadCloser, error) { return l.Compressed() }
