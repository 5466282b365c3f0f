package httpmwtest

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"

	"github.com/stretchr/testify/require"
)

// Count is how the suite reads a number from the service.
type Count struct {
	// Request asks for the number. The service answers with 200 and JSON. Method defaults to GET here.
	Request

	// Pointer is the place of the number in the answer, as a JSON pointer (RFC 6901).
	Pointer string `json:"pointer"`
}

// ask sends the request and returns the number.
func (c *Count) ask(s *session) int {
	s.t.Helper()
	q := c.Request
	if q.Method == "" {
		q.Method = http.MethodGet
	}
	got := s.send(q)
	require.Equal(s.t, http.StatusOK, got.status, "count the effects: %s", got.body)
	n, err := numberAt(got.body, c.Pointer)
	require.NoError(s.t, err, "count the effects in %s", got.body)
	return n
}

func numberAt(text, pointer string) (int, error) {
	var at any
	if err := json.Unmarshal([]byte(text), &at); err != nil {
		return 0, err
	}
	steps := strings.Split(pointer, "/")
	for _, step := range steps[1:] {
		step = strings.ReplaceAll(strings.ReplaceAll(step, "~1", "/"), "~0", "~")
		switch v := at.(type) {
		case map[string]any:
			at = v[step]
		case []any:
			i, err := strconv.Atoi(step)
			if err != nil || i < 0 || i >= len(v) {
				return 0, fmt.Errorf("there is no element %q", step)
			}
			at = v[i]
		default:
			at = nil
		}
	}
	n, ok := at.(float64)
	if !ok || steps[0] != "" {
		return 0, fmt.Errorf("there is no number at %q", pointer)
	}
	return int(n), nil
}
