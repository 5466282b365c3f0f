package event

import (
	"bytes"
	"encoding/json"
	"errors"
	"reflect"
)

// ContentTypeJSON is the media type of the default codec.
const ContentTypeJSON = "application/json"

// Codec turns events into bytes and back.
type Codec interface {
	// ContentType is the media type that Marshal produces.
	ContentType() string
	// Marshal encodes an event of the registered type.
	Marshal(v any) ([]byte, error)
	// Unmarshal decodes into v: a pointer to the registered type, or the type itself if that is a pointer.
	Unmarshal(data []byte, v any) error
}

// JSON is the default codec. Numbers keep every digit as long as the fields are integers or [json.Number].
type JSON struct{}

// ContentType is [ContentTypeJSON].
func (JSON) ContentType() string { return ContentTypeJSON }

// Marshal encodes v as JSON.
func (JSON) Marshal(v any) ([]byte, error) { return json.Marshal(v) }

// errNull: encoding/json leaves a struct unchanged for null, so a handler would get an event with only zero values.
var errNull = errors.New("the payload is null")

// Unmarshal decodes JSON into v. It ignores unknown fields, so that a producer can add fields. It refuses null for a struct that has no
// UnmarshalJSON of its own.
func (JSON) Unmarshal(data []byte, v any) error {
	if string(bytes.TrimSpace(data)) == "null" && isPlainStruct(v) {
		return errNull
	}
	return json.Unmarshal(data, v)
}

func isPlainStruct(v any) bool {
	if _, own := v.(json.Unmarshaler); own {
		return false
	}
	t := reflect.TypeOf(v)
	return t != nil && t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.Struct
}
