package main

import (
	"archive/tar"
	"bytes"
	"encoding/pem"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// imageFile is a file of an image or of an archive.
type imageFile struct {
	name string // without a slash at its beginning
	mode int64
	text []byte
}

// nobody is the user of the image. It is the number that other images without a shell have; the administrator of a cluster may demand a number.
const nobody = "65532"

const certificatesFile = "etc/ssl/certs/ca-certificates.crt"

// baseFiles are the files of the image that are not ours: the root certificates of Mozilla, whose state is that of the module in go.mod, and a user.
func baseFiles() []imageFile {
	var certificates bytes.Buffer
	for root := range bundle.Roots() {
		// Certificates with a condition are left out: a file cannot say the condition.
		if root.Constraint == nil {
			certificates.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}))
		}
	}
	return []imageFile{
		{"etc/passwd", 0o444, []byte("nonroot:x:" + nobody + ":" + nobody + ":nonroot:/:/sbin/nologin\n")},
		{"etc/group", 0o444, []byte("nonroot:x:" + nobody + ":\n")},
		{certificatesFile, 0o444, certificates.Bytes()},
	}
}

// layer makes a layer of an image. The same files and the same time always give the same layer.
func layer(files []imageFile, when time.Time) (v1.Layer, error) {
	text, err := archive(files, when)
	if err != nil {
		return nil, err
	}
	return tarball.LayerFromOpener(func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(text)), nil },
		tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}

// archive returns a tar file. Each folder stands before its first file. All of them belong to root, so the user of the image cannot change them.
func archive(files []imageFile, when time.Time) ([]byte, error) {
	var text bytes.Buffer
	w := tar.NewWriter(&text)
	seen := map[string]bool{".": true}
	var folder func(dir string) error
	folder = func(dir string) error {
		if seen[dir] {
			return nil
		}
		seen[dir] = true
		if err := folder(path.Dir(dir)); err != nil {
			return err
		}
		return w.WriteHeader(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755, ModTime: when, Format: tar.FormatPAX})
	}
	for _, f := range files {
		if err := folder(path.Dir(f.name)); err != nil {
			return nil, err
		}
		if err := w.WriteHeader(&tar.Header{Name: f.name, Mode: f.mode, Size: int64(len(f.text)), ModTime: when, Format: tar.FormatPAX}); err != nil {
			return nil, err
		}
		if _, err := w.Write(f.text); err != nil {
			return nil, err
		}
	}
	err := w.Close()
	return text.Bytes(), err
}

// filesBelow reads all files of a folder.
func filesBelow(dir string) (files []imageFile, err error) {
	err = fs.WalkDir(os.DirFS(dir), ".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(filepath.Join(dir, name))
		files = append(files, imageFile{name, 0o644, text})
		return err
	})
	return files, err
}
