//! The server: what of it is the protocol.

use super::root_folder::RootFolder;
use super::tool_calls::Tools;
use super::tool_list::{INSTRUCTIONS, tools};
use crate::limits::limits;
use crate::output::note;
use anyhow::{Context, Result};
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ErrorData, Implementation, ListToolsResult,
    PaginatedRequestParams, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::{RequestContext, RoleServer};
use rmcp::{ServerHandler, ServiceExt};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;

/// Commands at once: each may hold what a query may.
const AT_ONCE: u32 = 2;
/// How long commands are waited for that were ended.
const LEAVE: Duration = Duration::from_secs(5);

#[derive(Debug, Clone)]
struct Server {
    tools: Arc<Tools>,
    room: Arc<Semaphore>,
}

/// Ends a command whose answer nobody waits for any more.
struct StopOnDrop(Arc<AtomicBool>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Serves until standard input ends.
pub(super) fn until_the_end(root: RootFolder, program: PathBuf) -> Result<()> {
    let tools = Arc::new(Tools::new(root, program, limits(&[])?));
    let room = Arc::new(Semaphore::new(AT_ONCE as usize));
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().context("cannot start the server")?;
    let ended = runtime.block_on(async {
        let ended = serve(Server { tools, room: Arc::clone(&room) }).await;
        // Commands that nobody waits for end first.
        let _ = tokio::time::timeout(LEAVE, room.acquire_many(AT_ONCE)).await;
        ended
    });
    // A read of standard input that goes on is no reason to stay.
    runtime.shutdown_background();
    ended
}

async fn serve(server: Server) -> Result<()> {
    let files = (file(std::io::stdin()), file(std::io::stdout()));
    let (input, output) =
        (files.0.context("cannot read standard input")?, files.1.context("cannot write standard output")?);
    match server.serve((input, output)).await {
        Ok(running) => {
            running.waiting().await.context("the server stopped")?;
            Ok(())
        }
        // A client that goes before it has said who it is.
        Err(rmcp::service::ServerInitializeError::ConnectionClosed(why)) => {
            note(&format!("note: the client left before it began: {why}"));
            Ok(())
        }
        Err(error) => Err(error).context("the client does not speak the Model Context Protocol as it should"),
    }
}

/// Standard input or output as a file of the runtime's.
#[cfg(unix)]
fn file(of: impl std::os::fd::AsFd) -> std::io::Result<tokio::fs::File> {
    let owned = of.as_fd().try_clone_to_owned()?;
    Ok(tokio::fs::File::from_std(std::fs::File::from(owned)))
}

/// The same where handles are not called descriptors.
#[cfg(windows)]
fn file(of: impl std::os::windows::io::AsHandle) -> std::io::Result<tokio::fs::File> {
    let owned = of.as_handle().try_clone_to_owned()?;
    Ok(tokio::fs::File::from_std(std::fs::File::from(owned)))
}

impl Server {
    /// The answer of a tool, from a thread that may wait for its command.
    async fn answer(&self, asked: CallToolRequestParams, stop: Arc<AtomicBool>) -> Result<CallToolResult, ErrorData> {
        let Ok(room) = Arc::clone(&self.room).acquire_owned().await else {
            return Err(ErrorData::internal_error("the server is ending", None));
        };
        let (of, name) = (Arc::clone(&self.tools), asked.name.to_string());
        let arguments = asked.arguments.unwrap_or_default();
        let answer = tokio::task::spawn_blocking(move || {
            let _room = room;
            of.call(&name, &arguments, &stop)
        });
        match answer.await {
            Ok(Some(Ok(text))) => Ok(CallToolResult::success(vec![ContentBlock::text(text)])),
            Ok(Some(Err(why))) => Ok(CallToolResult::error(vec![ContentBlock::text(why)])),
            Ok(None) => {
                let known: Vec<String> = tools().iter().map(|tool| tool.name.to_string()).collect();
                let why = format!("there is no tool `{}`: there are {}", asked.name, known.join(", "));
                Err(ErrorData::invalid_params(why, None))
            }
            Err(error) => Err(ErrorData::internal_error(format!("the tool failed: {error}"), None)),
        }
    }
}

impl ServerHandler for Server {
    fn get_info(&self) -> ServerConfig {
        let program = Implementation::new("candlescope", env!("CARGO_PKG_VERSION"));
        ServerConfig::new(ServerCapabilities::builder().enable_tools().build())
            .with_server_info(program)
            .with_instructions(INSTRUCTIONS)
    }

    async fn list_tools(
        &self,
        _: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().into_iter().find(|tool| tool.name == name)
    }

    async fn call_tool(
        &self,
        asked: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let stop = Arc::new(AtomicBool::new(false));
        let _ended = StopOnDrop(Arc::clone(&stop));
        tokio::select! {
            answer = self.answer(asked, stop) => answer.map(CallToolResponse::from),
            () = context.ct.cancelled() => Err(ErrorData::internal_error("it was cancelled", None)),
        }
    }
}
