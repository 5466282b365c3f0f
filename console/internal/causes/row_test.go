package causes

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/oncebox/oncebox/ops"
)

// What the errors of a cause do not share is cut out of its text. A line has a real error, because the numbers say what to do.
func TestALineHasARealError(t *testing.T) {
	t.Parallel()
	c := &ops.Cause{Text: "version …: newer than version …", Count: 18}
	c.Kind, c.Consumer, c.Error = ops.MessageFailing, "mailer", "version 2: newer than version 1"
	require.Contains(t, Line(c, time.Now()), "keys fail, version 2: newer than version 1, since")
	c.Type = "order.placed"
	require.Contains(t, Line(c, time.Now()), "version 1 (order.placed), since", "which of several lines with one text it is")
}
