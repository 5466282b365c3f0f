package event

import "encoding/json"

// ContentTypeJSON is the media type of the default codec.
const ContentTypeJSON = "application/json"

// Codec turns events into bytes and back.
type Codec interface {
	// ContentType is the media type that Marshal produces.
	ContentType() string
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

// Unmarshal decodes JSON into v. Unknown fields are ignored, so that a producer may add some.
func (JSON) Unmarshal(data []byte, v any) error { return json.Unmarshal(data, v) }
