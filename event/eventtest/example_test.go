package eventtest_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/oncebox/oncebox/event"
	"github.com/oncebox/oncebox/event/eventtest"
)

// CustomerMoved was announced with a field "street", as testdata/events/customer.moved.v1.json proves.
type CustomerMoved struct {
	Address string `json:"address"`
}

func (CustomerMoved) EventType() string { return "customer.moved" }

// A field was renamed, and the version was not raised: a reader of stored events would find an empty address.
func ExampleGolden() {
	var t printer // in a test, its *testing.T

	registry := event.NewRegistry()
	event.Register[CustomerMoved](registry)
	eventtest.Golden(t, registry)
	// Output:
	// eventtest: testdata/events/customer.moved.v1.json: customer.moved version 1 was changed: street is gone.
	// Events of this version are stored and on their way.
	// Undo the change, or keep the file, raise the version to 2 (event.WithVersion),
	// turn the old form into the new one (event.WithUpcaster(1, ...)), and write the file of version 2 with EVENTTEST_UPDATE=1 go test.
}

// printer shows what a test would say, in several lines.
type printer struct{ testing.TB }

func (printer) Helper() {}

func (printer) Errorf(format string, a ...any) {
	fmt.Println(strings.NewReplacer(". ", ".\n", ", turn", ",\nturn").Replace(fmt.Sprintf(format, a...)))
}
