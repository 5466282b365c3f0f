package eventtest

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path"
	"regexp"
	"strconv"
	"strings"

	"github.com/oncebox/oncebox/event"
)

// file is the sample of one type and version, in testdata/events.
type file struct {
	path    string
	name    string
	version int
	payload []byte
}

func (f *file) envelope() *event.Envelope {
	return &event.Envelope{Type: f.name, SchemaVersion: f.version, Payload: f.payload}
}

const (
	jsonFile   = ".json"
	binaryFile = ".golden"
)

func pathOf(typ event.Type, version int) string {
	extension := binaryFile
	if typ.ContentType == event.ContentTypeJSON || strings.HasSuffix(typ.ContentType, "+json") {
		extension = jsonFile
	}
	return path.Join(folder, fmt.Sprintf("%s.v%d%s", url.QueryEscape(typ.Name), version, extension))
}

// readFiles reads the folder, sorted by name. The result is empty if there is no folder.
func readFiles() ([]file, error) {
	pattern := regexp.MustCompile(`^(.+)\.v([1-9][0-9]*)\.(json|golden)$`)
	entries, err := os.ReadDir(folder)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	var files []file
	for _, e := range entries {
		at := path.Join(folder, e.Name())
		if extension := path.Ext(at); extension != jsonFile && extension != binaryFile {
			continue // another kind of file, such as notes
		}
		parts := pattern.FindStringSubmatch(e.Name())
		if parts == nil {
			return nil, fmt.Errorf("%s is not named <type>.v<version>.json or .golden", e.Name())
		}
		name, err := url.QueryUnescape(parts[1])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		version, err := strconv.Atoi(parts[2])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e.Name(), err)
		}
		payload, err := readPayload(at)
		if err != nil {
			return nil, err
		}
		files = append(files, file{at, name, version, payload})
	}
	return files, err
}

// readPayload returns the payload in the form that is stored with events. The file has JSON indented for people.
func readPayload(at string) ([]byte, error) {
	payload, err := os.ReadFile(at) //nolint:gosec // of the folder that was listed
	if err != nil || path.Ext(at) != jsonFile || len(payload) == 0 {
		return payload, err
	}
	var compact bytes.Buffer
	if err := json.Compact(&compact, payload); err != nil {
		return nil, fmt.Errorf("%s: %w", at, err)
	}
	return compact.Bytes(), nil
}

func writeFile(at string, payload []byte) error {
	if path.Ext(at) == jsonFile {
		var indented bytes.Buffer
		if err := json.Indent(&indented, payload, "", "  "); err != nil {
			return err
		}
		payload = append(indented.Bytes(), '\n')
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // it is committed
		return err
	}
	return os.WriteFile(at, payload, 0o644) //nolint:gosec // it is committed
}
