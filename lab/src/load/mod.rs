//! Load on a server with the OpenAI API, in a closed or an open loop.
