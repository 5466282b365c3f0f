// Package protobuf is a codec for events that are Protocol Buffers messages. Programs that do not import it link nothing of
// Protocol Buffers.
//
// A generated message becomes an event by a method in a file beside the generated one:
//
//	func (*OrderPlaced) EventType() string { return "order.placed" }
//
// A message of somebody else's package is embedded:
//
//	type OrderPlaced struct{ *orderpb.OrderPlaced }
//
//	func (OrderPlaced) EventType() string { return "order.placed" }
//
// Both are registered with the codec:
//
//	event.Register[*OrderPlaced](registry, event.WithCodec(protobuf.Codec{}))
package protobuf

import (
	"errors"
	"fmt"
	"reflect"

	"google.golang.org/protobuf/proto"

	"github.com/oncebox/oncebox/event"
)

// ContentType is the media type of the codec.
const ContentType = "application/protobuf"

var _ event.Codec = Codec{}

var (
	errNoMessage = errors.New("it is no proto.Message: generate it with protoc-gen-go, or embed a pointer to a generated message")
	errNil       = errors.New("the message is nil")
)

// Codec encodes and decodes messages in the binary format.
type Codec struct{}

// ContentType is [ContentType].
func (Codec) ContentType() string { return ContentType }

// Marshal encodes v, which must be a proto.Message and not nil. Equal messages give equal bytes within one build of the
// program; Protocol Buffers promise no more.
func (Codec) Marshal(v any) ([]byte, error) {
	m, err := message(v)
	if err == nil && !m.ProtoReflect().IsValid() {
		err = errNil
	}
	if err != nil {
		return nil, fmt.Errorf("protobuf: marshal %T: %w", v, err)
	}
	return proto.MarshalOptions{Deterministic: true}.Marshal(m)
}

// Unmarshal decodes into v, which must be a proto.Message. If v embeds a message by a nil pointer, it creates that message. Unknown fields are
// ignored, as by the JSON codec, so that a producer can add fields.
func (Codec) Unmarshal(data []byte, v any) error {
	m, err := message(v)
	if err == nil && !m.ProtoReflect().IsValid() {
		err = embed(v, m.ProtoReflect().New().Interface())
	}
	if err != nil {
		return fmt.Errorf("protobuf: unmarshal %T: %w", v, err)
	}
	return proto.UnmarshalOptions{DiscardUnknown: true}.Unmarshal(data, m)
}

func message(v any) (proto.Message, error) {
	m, ok := v.(proto.Message)
	switch at := reflect.ValueOf(v); {
	case !at.IsValid():
		return nil, errNil
	case !ok:
		return nil, errNoMessage
	case at.Kind() == reflect.Pointer && at.IsNil():
		return nil, errNil
	default:
		return m, nil
	}
}

// embed sets the embedded message of the struct that v points to.
func embed(v any, m proto.Message) error {
	outer, made := reflect.ValueOf(v), reflect.ValueOf(m)
	if outer.Kind() != reflect.Pointer || outer.Elem().Kind() != reflect.Struct {
		return errNil
	}
	for i := range outer.Elem().NumField() {
		field := outer.Elem().Type().Field(i)
		if at := outer.Elem().Field(i); field.Anonymous && field.Type == made.Type() && at.CanSet() {
			at.Set(made)
			return nil
		}
	}
	return errNil
}
