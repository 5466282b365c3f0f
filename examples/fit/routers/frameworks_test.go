package routers

import (
	"errors"
	"net"
	"net/http"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
	"github.com/gorilla/mux"
	adapter "github.com/gwatts/gin-adapter"
	"github.com/labstack/echo/v4"
	echomw "github.com/labstack/echo/v4/middleware"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bunrouter"
)

// framework is a way to mount the middlewares.
type framework struct {
	name    string
	refused []string // what the log says of a request, one of these; none: it is right
	serve   func(t *testing.T, s *service, m Middleware, behave func(native) error) (url string)
}

func frameworks() []framework {
	return append([]framework{
		{name: "net/http", serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			routes := http.NewServeMux()
			routes.Handle("POST /pay", m(plain(behave)))
			return s.serve(t, routes)
		}},
		{name: "net/http, handlers with errors", serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			routes := http.NewServeMux()
			routes.Handle("POST /pay", m(WithErrors(returning(behave), render)))
			return s.serve(t, routes)
		}},
		// Errors are rendered outside of the middleware: each of them is an answer that nobody has written.
		{name: "net/http, errors outside", serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			return s.serve(t, outside(m, returning(behave)))
		}},
		{name: "chi", serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			r := chi.NewRouter()
			r.Use(middleware.Recoverer)
			r.With(m).Method(http.MethodPost, "/pay", plain(behave))
			return s.serve(t, r)
		}},
		{name: "gorilla", serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			r := mux.NewRouter()
			r.Use(m)
			r.Handle("/pay", plain(behave)).Methods(http.MethodPost)
			return s.serve(t, r)
		}},
		{name: "bunrouter", serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			r := bunrouter.New(bunrouter.Use(Bunrouter(m, render)))
			r.POST("/pay", func(w http.ResponseWriter, req bunrouter.Request) error { return behave(plainly(w, req.Request)) })
			return s.serve(t, r)
		}},
		{name: "echo", serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			return s.serve(t, newEcho(Echo(m), behave))
		}},
		{name: "echo, its WrapMiddleware", serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			return s.serve(t, newEcho(echo.WrapMiddleware(m), behave))
		}},
		{name: "echo, its writer kept", refused: past(), serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			return s.serve(t, newEcho(func(next echo.HandlerFunc) echo.HandlerFunc {
				return func(c echo.Context) (err error) {
					m(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
						c.SetRequest(r)
						err = next(c)
					})).ServeHTTP(c.Response(), c.Request())
					return err
				}
			}, behave))
		}},
		{name: "gin", serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			return s.serve(t, newGin(nil, Gin(m, ginHandler(behave))))
		}},
		{name: "gin, gwatts/gin-adapter", serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			return s.serve(t, newGin(adapter.Wrap(m), ginHandler(behave)))
		}},
		{name: "gin, its writer kept", refused: past(), serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			return s.serve(t, newGin(func(c *gin.Context) {
				c.Set("next", false)
				m(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
					c.Request = r
					c.Set("next", true)
					c.Next()
				})).ServeHTTP(c.Writer, c.Request)
				if !c.GetBool("next") {
					c.Abort() // or gin goes on, whatever was answered
				}
			}, ginHandler(behave)))
		}},
	}, fibers()...)
}

// past is what the log says where the writer of somebody further out was kept: something was written to it, or to nobody.
func past() []string {
	return []string{"from outside of this middleware", "the handler has returned without writing an answer"}
}

func render(w http.ResponseWriter, err error) {
	http.Error(w, err.Error(), http.StatusInternalServerError)
}

func plainly(w http.ResponseWriter, r *http.Request) native {
	control := http.NewResponseController(w)
	return native{
		ctx: r.Context(),
		answer: func(status int) error {
			w.WriteHeader(status)
			if status == http.StatusNoContent {
				return nil
			}
			_, err := w.Write([]byte("{}"))
			return err
		},
		stream: control.Flush,
		hijack: func() error {
			conn, _, err := control.Hijack()
			if err != nil {
				return err
			}
			return errors.Join(errors.New("it was hijacked"), conn.Close())
		},
	}
}

func plain(behave func(native) error) http.Handler { return WithErrors(returning(behave), render) }

func returning(behave func(native) error) HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) error { return behave(plainly(w, r)) }
}

func outside(m Middleware, h HandlerFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var err error
		m(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { err = h(w, r) })).ServeHTTP(w, r)
		if err != nil {
			render(w, err)
		}
	})
}

func newEcho(m echo.MiddlewareFunc, behave func(native) error) http.Handler {
	e := echo.New()
	e.Logger.SetOutput(discard{})
	e.Use(echomw.Recover())
	e.POST("/pay", func(c echo.Context) error {
		n := plainly(c.Response(), c.Request())
		n.answer = func(status int) error {
			if status == http.StatusNoContent {
				return c.NoContent(status)
			}
			return c.JSON(status, struct{}{})
		}
		return behave(n)
	}, m)
	return e
}

func newGin(m gin.HandlerFunc, h gin.HandlerFunc) http.Handler {
	gin.SetMode(gin.TestMode)
	r := gin.New()
	r.Use(gin.RecoveryWithWriter(discard{}))
	if m != nil {
		r.Use(m)
	}
	r.POST("/pay", h)
	return r
}

func ginHandler(behave func(native) error) gin.HandlerFunc {
	return func(c *gin.Context) {
		n := plainly(c.Writer, c.Request)
		writer := c.Writer
		n.answer = func(status int) error {
			if c.Writer != writer { // late
				writer.WriteHeader(status)
				writer.WriteHeaderNow()
				return nil
			}
			if status == http.StatusNoContent {
				c.Status(status)
				return nil
			}
			c.JSON(status, struct{}{})
			return nil
		}
		if err := behave(n); err != nil {
			c.AbortWithStatusJSON(http.StatusInternalServerError, gin.H{"error": err.Error()})
		}
	}
}

type discard struct{}

func (discard) Write(p []byte) (int, error) { return len(p), nil }

// listen serves an application that brings its own server. It ends with its listener: fasthttp's Shutdown races with contexts of requests.
func listen(t *testing.T, serve func(net.Listener) error) (url string) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() { ended <- serve(listener) }()
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		<-ended // some servers call that an error
	})
	return "http://" + listener.Addr().String()
}
