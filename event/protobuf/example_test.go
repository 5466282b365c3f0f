package protobuf_test

import (
	"fmt"

	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/event/protobuf"
)

// Renamed embeds a message of another package.
type Renamed struct{ *wrapperspb.StringValue }

func (Renamed) EventType() string { return "customer.renamed" }

// Events that are messages are registered with the codec. Others of the service may go on being JSON.
func Example() {
	registry := event.NewRegistry()
	event.Register[Renamed](registry, event.WithCodec(protobuf.Codec{}))

	encoded, err := registry.Encode(Renamed{wrapperspb.String("Ann")})
	fmt.Printf("%s %q %v\n", encoded.ContentType, encoded.Payload, err)

	ev, err := registry.Decode(&event.Envelope{Type: "customer.renamed", Payload: encoded.Payload})
	fmt.Println(ev.(Renamed).GetValue(), err)

	_, err = registry.Encode(Renamed{})
	fmt.Println(err)
	// Output:
	// application/protobuf "\n\x03Ann" <nil>
	// Ann <nil>
	// event: encode customer.renamed: protobuf: marshal protobuf_test.Renamed: the message is nil
}
