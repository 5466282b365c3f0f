package messagingtest

import (
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
)

// A new field of the envelope that is not sent by this suite could be lost by an adapter unnoticed: it would be empty on both sides.
func TestEveryFieldOfTheEnvelopeIsSent(t *testing.T) {
	sent := (&session{topic: "things"}).message("key", 1)
	for _, name := range []string{"every field", "delivery stays at home but for the ordering key"} {
		change, there := peculiarFields()[name]
		require.True(t, there, name)
		change(&sent)
	}
	for _, v := range []reflect.Value{reflect.ValueOf(sent), reflect.ValueOf(sent.Delivery)} {
		for i := range v.NumField() {
			require.False(t, v.Field(i).IsZero(), "set %s.%s in peculiarFields", v.Type().Name(), v.Type().Field(i).Name)
		}
	}
}
