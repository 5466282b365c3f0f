// Package skin reads the templates of the console's pages, its stylesheet and its icon.
package skin

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"html/template"
	"io"
	"io/fs"
	"net/http"
	"path"
	"strings"
)

// The files that pages refer to.
const (
	Stylesheet = "console.css"
	Icon       = "icon.svg"
)

// Classes of states and numbers, by their names in the stylesheet.
const (
	Bad   = "bad"
	Warn  = "warn"
	Good  = "good"
	Plain = "plain"
)

// Skin has the templates and files. It is safe for concurrent use.
type Skin struct {
	pages map[string]*template.Template
	files map[string]file
}

// file is a file that pages refer to. Its address contains a hash of its content, so browsers may keep it until it changes.
type file struct {
	kind, hash string
	data       []byte
}

// Read reads the folders templates and assets. Each page is parsed together with layout.html and parts.html.
func Read(from fs.FS, funcs template.FuncMap) (*Skin, error) {
	s := &Skin{pages: map[string]*template.Template{}, files: map[string]file{}}
	layout, err := template.New("layout.html").Funcs(funcs).ParseFS(from, "templates/layout.html", "templates/parts.html")
	if err != nil {
		return nil, fmt.Errorf("read the layout: %w", err)
	}
	names, err := fs.Glob(from, "templates/*.html")
	if err != nil {
		return nil, fmt.Errorf("look for templates: %w", err)
	}
	for _, name := range names {
		page := strings.TrimSuffix(path.Base(name), ".html")
		if page == "layout" || page == "parts" {
			continue
		}
		one, err := layout.Clone()
		if err == nil {
			one, err = one.ParseFS(from, name)
		}
		if err != nil {
			return nil, fmt.Errorf("read the page %s: %w", page, err)
		}
		s.pages[page] = one
	}
	for name, kind := range map[string]string{Stylesheet: "text/css; charset=utf-8", Icon: "image/svg+xml"} {
		data, err := fs.ReadFile(from, "assets/"+name)
		if err != nil {
			return nil, fmt.Errorf("read an embedded file: %w", err)
		}
		sum := sha256.Sum256(data)
		s.files[name] = file{kind, hex.EncodeToString(sum[:8]), data}
	}
	return s, nil
}

// Page writes a page.
func (s *Skin) Page(to io.Writer, name string, data any) error {
	return s.pages[name].Execute(to, data)
}

// Part writes a part of a page, which is a template of its own.
func (s *Skin) Part(to io.Writer, name, part string, data any) error {
	return s.pages[name].ExecuteTemplate(to, part, data)
}

// Files returns the names of the files that pages refer to.
func (s *Skin) Files() []string { return []string{Stylesheet, Icon} }

// Href returns the address of a file. It changes with the content, so a new version of the program is never shown with an old stylesheet.
func (s *Skin) Href(name string) string { return name + "?v=" + s.files[name].hash }

// Send sends a file. It permits caching only if hash is the present one: during a rolling update another version may answer.
func (s *Skin) Send(w http.ResponseWriter, name, hash string) {
	f := s.files[name]
	w.Header().Set("Content-Type", f.kind)
	if hash == f.hash {
		w.Header().Set("Cache-Control", "private, max-age=31536000, immutable")
	}
	w.WriteHeader(http.StatusOK)
	_, _ = w.Write(f.data)
}
