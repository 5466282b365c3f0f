package idempotency

import (
	"database/sql"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// A stored answer comes back byte for byte, or is refused.
func FuzzStoredResponse(f *testing.F) {
	f.Add(201, "Location", "/payments/1", []byte(`{"id":1}`), "")
	f.Add(200, "X-Odd", "a\r\nb\x00", []byte{0, 255}, "")
	f.Add(200, "", "", []byte(nil), OmittedTooLarge)
	f.Fuzz(func(t *testing.T, status int, name, value string, body []byte, omitted string) {
		sent := Response{Status: int(int16(status)), Header: map[string][]string{name: {value, value}}, Body: body, Omitted: omitted}
		headers, stored, reason, err := sent.columns()
		if int16(status) < 200 || int16(status) > 599 {
			require.ErrorContains(t, err, "status")
			return
		}
		if !utf8.ValidString(name) || !utf8.ValidString(value) {
			require.ErrorContains(t, err, "UTF-8")
			return
		}
		require.NoError(t, err)
		text, _ := reason.(string)
		fp := NewFingerprint("t", body)
		row := record{
			state: sql.NullString{String: stateCompleted, Valid: true}, tag: sql.NullString{String: "t", Valid: true}, sum: fp.Sum[:],
			status: sql.NullInt16{Int16: int16(status), Valid: true}, headers: sql.NullString{String: headers, Valid: true},
			reason: sql.NullString{String: text, Valid: text != ""}, body: stored,
		}
		got, err := row.answer(fp)
		require.NoError(t, err)
		require.Equal(t, sent.Status, got.Status)
		require.Equal(t, sent.Omitted, got.Omitted)
		require.Equal(t, sent.Header, got.Header)
		if omitted == "" {
			require.Equal(t, string(body), string(got.Body))
			require.NotNil(t, stored, "NULL would say that the body was not kept")
		} else {
			require.Nil(t, stored)
		}
	})
}
