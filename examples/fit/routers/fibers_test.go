package routers

import (
	"bufio"
	"net"
	"net/http"
	"testing"

	"github.com/gofiber/fiber/v2"
	"github.com/gofiber/fiber/v2/middleware/adaptor"
	recover2 "github.com/gofiber/fiber/v2/middleware/recover"
	fiber3 "github.com/gofiber/fiber/v3"
	adaptor3 "github.com/gofiber/fiber/v3/middleware/adaptor"
	recover3 "github.com/gofiber/fiber/v3/middleware/recover"
)

// fibers are both versions of Fiber. There is one answer of a request there, which code further out could change.
func fibers() []framework {
	return []framework{
		{name: "fiber 2", serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			app := newFiber(s)
			app.Post("/pay", Fiber(m, fiberHandler(behave)))
			return listen(t, app.Listener)
		}},
		{name: "fiber 2, its adaptor", refused: []string{adapted}, serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			app := newFiber(s)
			app.Post("/pay", adaptor.HTTPMiddleware(m), fiberHandler(behave))
			return listen(t, app.Listener)
		}},
		{name: "fiber 2, its adaptor, between others", refused: []string{adapted}, serve: func(t *testing.T, s *service, m Middleware,
			behave func(native) error) string {
			app := newFiber(s)
			app.Post("/pay", adaptor.HTTPMiddleware(between(m)), fiberHandler(behave))
			return listen(t, app.Listener)
		}},
		{name: "fiber 2, net/http behind its adaptor", serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			app := newFiber(s)
			app.Post("/pay", adaptor.HTTPHandler(m(plain(behave))))
			return listen(t, app.Listener)
		}},
		{name: "fiber 3", serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			app := newFiber3(s)
			app.Post("/pay", Fiber3(m, fiber3Handler(behave)))
			return listen(t, quietly(app))
		}},
		{name: "fiber 3, its adaptor", refused: []string{adapted}, serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			app := newFiber3(s)
			app.Post("/pay", adaptor3.HTTPMiddleware(m), fiber3Handler(behave))
			return listen(t, quietly(app))
		}},
		{name: "fiber 3, its adaptor, between others", refused: []string{adapted}, serve: func(t *testing.T, s *service, m Middleware,
			behave func(native) error) string {
			app := newFiber3(s)
			app.Post("/pay", adaptor3.HTTPMiddleware(between(m)), fiber3Handler(behave))
			return listen(t, quietly(app))
		}},
		{name: "fiber 3, net/http behind its adaptor", serve: func(t *testing.T, s *service, m Middleware, behave func(native) error) string {
			app := newFiber3(s)
			app.Post("/pay", adaptor3.HTTPHandler(m(plain(behave))))
			return listen(t, quietly(app))
		}},
	}
}

// adapted is the way that the log names.
const adapted = "httpmw/fasthttpmw"

// between puts a middleware between others.
func between(m Middleware) Middleware {
	other := func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { next.ServeHTTP(w, r) })
	}
	return func(next http.Handler) http.Handler { return other(m(other(next))) }
}

func newFiber(s *service) *fiber.App {
	app := fiber.New(fiber.Config{DisableStartupMessage: true})
	app.Use(func(c *fiber.Ctx) error {
		defer s.runLate()
		return c.Next()
	}, recover2.New())
	return app
}

func fiberHandler(behave func(native) error) fiber.Handler {
	return func(c *fiber.Ctx) error {
		return behave(native{
			ctx: c.UserContext(),
			answer: func(status int) error {
				if status == http.StatusNoContent {
					return c.SendStatus(status)
				}
				return c.Status(status).JSON(fiber.Map{})
			},
			stream: func() error {
				c.Context().SetBodyStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString("{}") })
				return nil
			},
			hijack: func() error {
				c.Context().Hijack(func(conn net.Conn) { _, _ = conn.Write([]byte("{}")) })
				return nil
			},
		})
	}
}

func newFiber3(s *service) *fiber3.App {
	app := fiber3.New()
	app.Use(func(c fiber3.Ctx) error {
		defer s.runLate()
		return c.Next()
	}, recover3.New())
	return app
}

func quietly(app *fiber3.App) func(net.Listener) error {
	return func(l net.Listener) error { return app.Listener(l, fiber3.ListenConfig{DisableStartupMessage: true}) }
}

func fiber3Handler(behave func(native) error) fiber3.Handler {
	return func(c fiber3.Ctx) error {
		return behave(native{
			ctx: c.Context(),
			answer: func(status int) error {
				if status == http.StatusNoContent {
					return c.SendStatus(status)
				}
				return c.Status(status).JSON(fiber3.Map{})
			},
			stream: func() error {
				c.RequestCtx().SetBodyStreamWriter(func(w *bufio.Writer) { _, _ = w.WriteString("{}") })
				return nil
			},
			hijack: func() error {
				c.RequestCtx().Hijack(func(conn net.Conn) { _, _ = conn.Write([]byte("{}")) })
				return nil
			},
		})
	}
}
